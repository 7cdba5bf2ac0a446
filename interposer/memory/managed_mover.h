// SPDX-License-Identifier: Apache-2.0
// The managed backend's mover: the driver keeps the contents, and the pages of a handle are migrated to the
// host or to the GPU. A new handle needs no call: its pages appear when the GPU first touches them.
#pragma once

#include <array>
#include <atomic>

#include "interposer/memory/host_budget.h"
#include "interposer/memory/mover.h"

namespace sharedgpu {

class ManagedMover final : public Mover {
 public:
  ManagedMover(Device& device, const HostBudget& budget) : device_(device), budget_(budget) {}

  CUresult back(Handle& handle) override;
  CUresult unback(Handle& handle) override;
  void forget(Handle& handle) override;
  // The program maps no managed memory.
  CUresult show(Handle& /*handle*/) override { return CUDA_SUCCESS; }
  CUresult hide(Handle& /*handle*/, View& /*view*/) override { return CUDA_SUCCESS; }
  bool settle() override;
  bool unsettled() const override { return false; }  // no free has to wait for a copy
  Begun begin_out(const Leaver& leaver, Lane lane) override;
  bool end_out(Handle& handle, Lane lane) override;
  CUresult begin_in(Handle& handle, Lane lane) override;
  bool end_in(Handle& handle, Lane lane) override;
  // The driver keeps the host memory of evicted contents even when they are on the GPU again.
  Bytes host_held() const override { return {held_.load(std::memory_order_relaxed)}; }
  Bytes host_used() const override { return host_held(); }

 private:
  bool take_room(Bytes size);
  bool wait(Lane lane);

  Device& device_;
  const HostBudget& budget_;
  std::atomic<std::uint64_t> held_{0};

  // Used by the turn thread only.
  Bytes room_;                             // part of the budget still to be used in this turn
  Bytes under_way_;                        // bytes on the way to the host, perhaps not yet charged to the job
  std::array<bool, Lane::kCount> late_{};  // a wait for the lane has failed
};

}  // namespace sharedgpu
