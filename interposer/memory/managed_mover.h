// SPDX-License-Identifier: Apache-2.0
// The managed backend's mover: the driver keeps the contents, and the pages of a handle are migrated to the
// host or to the GPU. A new handle needs no driver call: the driver provides its pages when the GPU first
// touches them.
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
  // The program cannot map managed memory, so there are no views.
  CUresult show(Handle& /*handle*/) override { return CUDA_SUCCESS; }
  CUresult hide(Handle& /*handle*/, View& /*view*/) override { return CUDA_SUCCESS; }
  bool settle() override;
  bool unsettled() const override { return false; }  // memory can be freed while a prefetch is running
  Begun begin_out(const Leaver& leaver, Lane lane) override;
  bool end_out(Handle& handle, Lane lane) override;
  CUresult begin_in(Handle& handle, Lane lane) override;
  bool end_in(Handle& handle, Lane lane) override;
  // Includes restored handles: the driver keeps the host memory of a handle that was once evicted.
  Bytes host_held() const override { return {held_.load(std::memory_order_relaxed)}; }
  Bytes host_used() const override { return host_held(); }

 private:
  bool take_room(Bytes size);
  bool wait(Lane lane);

  Device& device_;
  const HostBudget& budget_;
  std::atomic<std::uint64_t> held_{0};

  // Used by the turn thread only.
  Bytes room_;                             // host memory that was found in the budget, and that no handle has
                                           // taken yet
  Bytes under_way_;                        // bytes that prefetches are moving to the host; the budget may not
                                           // count them yet
  std::array<bool, Lane::kCount> late_{};  // true: a wait for the lane has failed
};

}  // namespace sharedgpu
