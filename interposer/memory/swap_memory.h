// SPDX-License-Identifier: Apache-2.0
// The swap backend: an address range lasts as long as its allocation, while the physical handles under it
// come and go; evicted contents lie in pinned host memory. See README.md in this directory.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "interposer/memory/address_space.h"
#include "interposer/memory/deferred_frees.h"
#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/host_pool.h"
#include "interposer/memory/host_system.h"
#include "interposer/memory/memory.h"
#include "interposer/memory/mover.h"
#include "interposer/memory/mutex.h"
#include "interposer/memory/program_allocations.h"
#include "interposer/memory/residency.h"

namespace sharedgpu {

struct SwapOptions {
  Bytes large = mebibytes(8);           // an allocation of this size or more has a range of its own
  Bytes handle = mebibytes(64);         // size of the handles of such a range
  Bytes largest_arena = mebibytes(64);  // an arena for smaller ones grows up to this size
  Bytes report_every = mebibytes(128);  // bytes moved between two reports
  // How long allocate() waits for memory that the driver is still taking from another process.
  Nanoseconds patience = std::chrono::seconds(2);
};

class SwapMemory : public Memory, public ProgramMemory {
 public:
  // All arguments outlive the object.
  SwapMemory(Device& device, const HostBudget& budget, HostSystem& system, Books& books,
             const SwapOptions& options = {});
  // Frees everything. Only for tests: a process that ends leaves this to the driver.
  ~SwapMemory() override;

  CUresult allocate(CUdeviceptr* address, Bytes size) override;
  std::optional<CUresult> free(CUdeviceptr address) override { return free(address, Gpu::may_run); }
  std::optional<CUresult> free_unused(CUdeviceptr address) override { return free(address, Gpu::drained); }
  CUresult free_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks) override;
  bool frees_late() const override { return device_.unreserve_waits(); }
  std::optional<AddressRange> find(CUdeviceptr address) const override;
  void renew_access() override;
  CUresult settle(CUdeviceptr address, Bytes size) override;
  bool exportable() const override { return device_.exportable(); }
  CUresult export_piece(CUdeviceptr base, unsigned index, Piece* piece) override;
  ProgramMemory* program_memory() override { return this; }
  CUresult create(Id* id, Bytes size, const CUmemAllocationProp& kind) override;
  std::optional<CUresult> release(Id id) override;
  std::optional<CUmemAllocationProp> properties(Id id) const override;
  std::optional<CUresult> map(CUdeviceptr address, Bytes size, Id id) override;
  std::optional<Id> retain(CUdeviceptr address) override;
  std::optional<Mapping> next(CUdeviceptr address, Bytes size) const override;
  CUresult unmap(CUdeviceptr address) override;
  CUresult set_access(CUdeviceptr address, const CUmemAccessDesc* access, std::size_t count) override;
  std::optional<CUresult> settle(Id id, CUmemGenericAllocationHandle* real) override;
  CUresult pin(Bytes size) override;
  void unpin(Bytes size) override;
  void pin_unasked(Bytes size) override;
  void set_context_size(Bytes size) override;
  MemoryUse use() const override;
  Bytes due() const override;
  Bytes job_host_limit() const override;
  void set_allowed(Bytes allowed) override;
  Bytes allowed() const override;
  bool evict() override;
  Traffic moved() const override { return mover_->moved(); }
  Eviction last_eviction() const override { return last_eviction_; }
  bool restore() override;
  void prepare_host(Bytes size, unsigned sharers) override {
    if (pool_) pool_->prepare(size, sharers);
  }
  void tend_freed() override { free_deferred(Gpu::may_be_idle); }
  void tend() override;
  bool watch_host() override;

  // A copy of every handle, by address. For tests, while no other thread moves any.
  std::vector<Handle> handles() const;

 protected:
  // The mover, and the pinned host memory that it moves contents to; `pool` is null if the driver keeps the
  // contents.
  struct Moving {
    std::unique_ptr<HostPool> pool;
    std::unique_ptr<Mover> mover;
  };
  SwapMemory(Device& device, const HostBudget& budget, Books& books, const SwapOptions& options,
             Moving moving);
  // As free_with(), for blocks with ranges of their own that the driver frees with the context. The driver
  // also frees the context's memory whose free was deferred.
  CUresult lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks);

 private:
  using Handles = std::vector<Handle*>;
  using Made = ProgramAllocations::Made;
  // How much is known of the process's work on the GPU: it may run and must be waited for, it may be idle and
  // is only queried, or it is drained.
  enum class Gpu { may_run, may_be_idle, drained };

  static Moving moving_to_host(Device& device, const HostBudget& budget, HostSystem& system);
  bool bring_back();
  // For the turn thread. These functions release the mutex while they work.
  bool choose(Bytes excess, std::deque<Leaver>& chosen) REQUIRES(mutex_);
  Mover::Begun begin_out(const Leaver& leaver, Lane lane) REQUIRES(mutex_);
  bool give_up_copy() REQUIRES(mutex_);
  void give_up_copies();
  void drop_copy(Handle& handle) REQUIRES(mutex_);
  // Growing and shrinking: swap_memory.cpp. A refusal of a growth that is only tried is not reported to the
  // user.
  enum class Wish { needed, tried };
  // Calls `take`, with a Wish, to grow. If memory is short, carries out the deferred frees and calls it
  // again.
  template <class Take>
  CUresult make_room(Take take) {
    if (defers()) {
      const CUresult result = take(Wish::tried);
      if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
      free_deferred(Gpu::may_run);
    }
    return take(Wish::needed);
  }
  CUresult allocate_small(CUdeviceptr* address, Bytes size, Bytes exact, Wish wish);
  bool take_from_arenas(CUdeviceptr* address, Bytes size);
  void note_use(Range& range) REQUIRES(mutex_);
  Bytes next_arena(Bytes needed) const;
  CUresult grow(CUdeviceptr* address, Bytes size, Bytes range_size, bool arena, Wish wish);
  bool may_grow(Residency::Count count, Bytes size, Wish wish);
  void take_back(Residency::Count count, Bytes size);  // and reports
  CUresult add_range(Range** added, Bytes size, bool arena, Bytes handle, const CUmemAllocationProp* kind,
                     Wish wish);
  CUresult add_granted(Range** added, Bytes size, bool arena, Bytes handle, const CUmemAllocationProp* kind);
  CUresult back(Range& range);
  CUresult back(Handle& handle);
  void claim_all(Range& range) REQUIRES(mutex_);
  CUresult take_down(Range& range);
  Books::Answer within_host_limit();
  Bytes read_host_limit();
  // Freeing: swap_freeing.cpp.
  std::optional<CUresult> free(CUdeviceptr address, Gpu gpu);
  bool condemn(CUdeviceptr address);
  void reprieve(CUdeviceptr address);
  CUresult free_condemned(CUdeviceptr address, Gpu gpu);
  CUresult free_block(CUdeviceptr address, Gpu gpu);
  bool defers() const;
  void free_deferred(Gpu gpu);

  // Memory that stays where it is: swap_settle.cpp.
  enum class Found { none, missing, all };
  Found handles_to_settle(CUdeviceptr address, Bytes size, Handles& found) REQUIRES(mutex_);
  // Memory that the program has created itself: swap_program.cpp.
  CUresult drop_if_unused(Id id) REQUIRES(mutex_);
  CUresult show(Made& made, CUdeviceptr address) REQUIRES(mutex_);
  CUresult hide(Made& made, CUdeviceptr address) REQUIRES(mutex_);

  // Acquire the handle for the caller, and release it.
  void wait_and_claim(Handle& handle) REQUIRES(mutex_);
  void unclaim(Handle& handle) REQUIRES(mutex_);

  Bytes round_up(Bytes size) const;

  Device& device_;
  const HostBudget& budget_;
  Books& books_;
  const SwapOptions options_;
  const Bytes granularity_;
  const std::unique_ptr<HostPool> pool_;  // null: see Moving
  const std::unique_ptr<Mover> mover_;

  // Held by the one thread that requests growth: its request already counts and may be refused, and must not
  // affect another request meanwhile.
  std::mutex growth_;
  std::mutex arena_growth_;  // held by the thread that adds an arena; lock order: this, growth_, mutex_

  // Never held across a driver call that copies or waits, nor across a call of books_.
  mutable Mutex mutex_;
  Condition settled_;  // a handle has ceased to be busy, less is resident, or a deferred free is done
  AddressSpace space_ GUARDED_BY(mutex_);
  Residency residency_ GUARDED_BY(mutex_);
  DeferredFrees deferred_ GUARDED_BY(mutex_);
  ProgramAllocations program_ GUARDED_BY(mutex_);
  std::uint64_t allocations_ GUARDED_BY(mutex_) = 0;
  Bytes context_ GUARDED_BY(mutex_);
  bool lost_ GUARDED_BY(mutex_) = false;     // evicted memory stays evicted
  Bytes host_limit_ GUARDED_BY(mutex_);      // as last read
  Bytes job_host_limit_ GUARDED_BY(mutex_);  // the same
  Bytes within_limit_ GUARDED_BY(mutex_);    // the largest footprint known to be within the limit

  // The turn thread's own.
  Bytes host_peak_;  // the most that was evicted since everything was last resident
  Eviction last_eviction_;
};

}  // namespace sharedgpu
