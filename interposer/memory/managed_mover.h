// SPDX-License-Identifier: Apache-2.0
// The managed backend's mover: the driver keeps the contents, and the pages of a handle are migrated to the
// host or to the GPU. A new handle needs no prefetch: the driver provides its pages when the GPU first
// touches them.
//
// If more managed memory may be on the GPU than fits there, the driver moves pages to and fro by itself,
// which can stop the GPU. So the driver may move pages to the GPU only for handles that count as resident,
// which the arbiter has granted. A handle that is away is kept on the host: the driver has accepted the
// advice to leave its pages there, and the GPU uses them over the bus.
//
// The kernel charges the job for host pages when they are made. Until that is certain for a handle that is
// away, its memory is promised: the budget counts it as host memory that no cgroup is charged for.
#pragma once

#include <array>
#include <atomic>

#include "interposer/memory/host_budget.h"
#include "interposer/memory/mover.h"

namespace sharedgpu {

class ManagedMover final : public Mover {
 public:
  ManagedMover(Device& device, HostBudget& budget) : device_(device), budget_(budget) {}

  CUresult back(Handle& handle) override;
  CUresult unback(Handle& handle) override;
  void forget(Handle& handle) override;
  // The program cannot map managed memory, so there are no views.
  CUresult show(Handle& /*handle*/) override { return CUDA_SUCCESS; }
  CUresult hide(Handle& /*handle*/, View& /*view*/) override { return CUDA_SUCCESS; }
  bool settle() override;
  bool unsettled() const override { return false; }  // memory can be freed while a prefetch is in flight
  Begun begin_out(const Leaver& leaver, Lane lane) override;
  bool end_out(Handle& handle, Lane lane) override;
  CUresult begin_in(Handle& handle, Lane lane) override;
  bool end_in(Handle& handle, Lane lane) override;
  bool supports_away() const override { return device_.keeps_on_host(); }
  bool moves_beside_work() const override { return true; }  // the driver repeats accesses that fault
  Begun begin_leave(Handle& handle, Lane lane) override;
  bool end_leave(Handle& handle, Lane lane) override;
  bool begin_enter(Handle& handle, Lane lane) override;
  bool end_enter(Handle& handle, Lane lane) override;
  Bytes promised() const override { return {promised_.load(std::memory_order_relaxed)}; }
  bool keep_promise(Handle& handle) override;
  // Includes restored handles: the driver keeps the host memory of a handle that was once on the host.
  // Handles that are away do not count.
  Bytes host_held() const override { return {held_.load(std::memory_order_relaxed)}; }
  Bytes host_used() const override { return host_held(); }
  // Counts exchanges only, and not the evictions and restores of turns. Handles are counted as a whole, even
  // if the program has not used all of their pages.
  Traffic moved() const override {
    return {.evicted = {evicted_.load(std::memory_order_relaxed)},
            .restored = {restored_.load(std::memory_order_relaxed)}};
  }

 private:
  bool take_room(Bytes size);
  bool wait(Lane lane);
  Begun begin_prefetch_to_host(const Handle& handle, Lane lane);
  bool end_prefetch_to_host(const Handle& handle, Lane lane);
  void promise(Handle& handle);
  void drop_promise(Handle& handle);

  Device& device_;
  HostBudget& budget_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<std::uint64_t> promised_{0};
  std::atomic<std::uint64_t> evicted_{0};
  std::atomic<std::uint64_t> restored_{0};

  // Used by the turn thread only.
  Bytes room_;                             // host memory that was reserved in the budget and is not used yet
  Bytes under_way_;                        // bytes in flight to the host, which the budget may not count yet
  std::array<bool, Lane::kCount> late_{};  // true: a wait for the lane has failed
};

}  // namespace sharedgpu
