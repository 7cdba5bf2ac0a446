// SPDX-License-Identifier: Apache-2.0
// The swap backend's way: contents are copied to pinned host memory, then the physical memory is unmapped;
// and back to new physical memory at the same address.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>

#include "interposer/memory/host_pool.h"
#include "interposer/memory/mover.h"

namespace sharedgpu {

class SwapMover final : public Mover {
 public:
  SwapMover(Device& device, const HostBudget& budget, HostSystem& system)
      : device_(device), pool_(device, budget, system, device.granularity()) {}

  CUresult back(Handle& handle) override;
  CUresult unback(Handle& handle) override;
  void forget(Handle& handle) override;
  CUresult show(Handle& handle) override;
  CUresult hide(Handle& handle, View& view) override;
  bool settle() override;
  bool unsettled() const override {
    return std::any_of(unsettled_.begin(), unsettled_.end(), [](const auto& lane) { return lane.load(); });
  }
  bool begin_out(Handle& handle, Lane lane) override;
  bool end_out(Handle& handle, Lane lane) override;
  CUresult begin_in(Handle& handle, Lane lane) override;
  bool end_in(Handle& handle, Lane lane) override;
  Bytes host_held() const override { return pool_.held(); }
  Bytes host_used() const override { return pool_.used(); }
  void prepare_host(Bytes goal, unsigned sharers) override { pool_.prepare(goal, sharers); }
  void hurry_host(Bytes goal) override { pool_.hurry(goal); }
  void trim_host(Bytes keep) override { pool_.trim(keep); }
  void tend_host() override { pool_.tend(); }

 private:
  CUresult map(Handle& handle);
  void give_back(Physical physical);
  bool settle(Lane lane);

  Device& device_;
  HostPool pool_;
  std::array<HostRoom, Lane::kCount> filling_;               // what the copies out are writing
  std::array<std::atomic<bool>, Lane::kCount> unsettled_{};  // a copy may be under way for one that failed
};

}  // namespace sharedgpu
