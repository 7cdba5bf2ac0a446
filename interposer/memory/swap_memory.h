// SPDX-License-Identifier: Apache-2.0
// The swap backend: address ranges for life, physical handles that come and go, contents in pinned host
// memory meanwhile. See README.md beside it.
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
  Bytes handle = mebibytes(64);         // what such a range is cut into
  Bytes largest_arena = mebibytes(64);  // what smaller ones share grows up to this
  Bytes report_every = mebibytes(128);  // of what was moved
  // How long allocate() waits for memory that the driver is still taking from another process.
  Nanoseconds patience = std::chrono::seconds(2);
};

class SwapMemory : public Memory, public ProgramMemory {
 public:
  // All outlive it.
  SwapMemory(Device& device, const HostBudget& budget, HostSystem& system, Books& books,
             const SwapOptions& options = {});
  // Frees everything. For tests: a process that ends leaves that to the driver.
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

  // Every handle as it stands, by address. For tests, while no other thread moves any.
  std::vector<Handle> handles() const;

 protected:
  // The mover, and the pinned host memory that it moves contents to; null: the driver keeps them.
  struct Moving {
    std::unique_ptr<HostPool> pool;
    std::unique_ptr<Mover> mover;
  };
  SwapMemory(Device& device, const HostBudget& budget, Books& books, const SwapOptions& options,
             Moving moving);
  // As free_with(), for blocks that have ranges of their own and are freed by the driver with the context, as
  // is what has been freed there but not yet given back.
  CUresult lose_with(Destruction& destruction, const std::vector<CUdeviceptr>& blocks);

 private:
  using Handles = std::vector<Handle*>;
  using Made = ProgramAllocations::Made;
  // Whether work of this process may be on the GPU, which is to be waited for, or only asked about.
  enum class Gpu { may_run, may_be_idle, drained };

  static Moving moving_to_host(Device& device, const HostBudget& budget, HostSystem& system);
  bool bring_back();
  // The turn thread calls these. They give the mutex up meanwhile.
  bool choose(Bytes excess, std::deque<Leaver>& chosen) REQUIRES(mutex_);
  Mover::Begun begin_out(const Leaver& leaver, Lane lane) REQUIRES(mutex_);
  bool give_up_copy() REQUIRES(mutex_);
  void give_up_copies();
  void drop_copy(Handle& handle) REQUIRES(mutex_);
  // Growing and shrinking: swap_memory.cpp.
  // Where it is refused, what is only tried says nothing to the user.
  enum class Wish { needed, tried };
  // Calls `take`, with a Wish, to grow; where memory is short, again without what was freed.
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
  // What the program made itself: swap_program.cpp.
  CUresult drop_if_unused(Id id) REQUIRES(mutex_);
  CUresult show(Made& made, CUdeviceptr address) REQUIRES(mutex_);
  CUresult hide(Made& made, CUdeviceptr address) REQUIRES(mutex_);

  // Makes the handle the caller's, and lets it go.
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

  // Held by the one thread that asks leave to grow: what it asks for counts already and may be refused, and
  // must not be in another's way meanwhile.
  std::mutex growth_;
  std::mutex arena_growth_;  // held by the one that brings an arena; taken before growth_, that before mutex_

  // Never held across a driver call that copies or waits, nor across the books' calls.
  mutable Mutex mutex_;
  Condition settled_;  // a handle is no longer busy, less is resident, or a block was freed late
  AddressSpace space_ GUARDED_BY(mutex_);
  Residency residency_ GUARDED_BY(mutex_);
  DeferredFrees deferred_ GUARDED_BY(mutex_);
  ProgramAllocations program_ GUARDED_BY(mutex_);
  std::uint64_t allocations_ GUARDED_BY(mutex_) = 0;
  Bytes context_ GUARDED_BY(mutex_);
  bool lost_ GUARDED_BY(mutex_) = false;     // what is away stays away
  Bytes host_limit_ GUARDED_BY(mutex_);      // as last read
  Bytes job_host_limit_ GUARDED_BY(mutex_);  // the same
  Bytes within_limit_ GUARDED_BY(mutex_);    // the largest footprint that a limit was seen to allow

  // The turn thread's own.
  Bytes host_peak_;  // the most that was evicted since all was resident
  Eviction last_eviction_;
};

}  // namespace sharedgpu
