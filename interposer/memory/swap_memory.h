// SPDX-License-Identifier: Apache-2.0
// The swap backend: address ranges for life, physical handles that come and go, contents in pinned host
// memory meanwhile. See README.md beside it.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "interposer/memory/device.h"
#include "interposer/memory/host_budget.h"
#include "interposer/memory/host_pool.h"
#include "interposer/memory/host_system.h"
#include "interposer/memory/memory.h"
#include "interposer/memory/mover.h"
#include "interposer/memory/order.h"
#include "interposer/memory/packing.h"

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
  // What moves contents, and the pinned host memory that it moves them to; null: the driver keeps them.
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
  struct Block {
    Bytes size;  // as the program asked for it
    Range* range = nullptr;
    bool dying = false;  // a thread is freeing it, or will after a capture
  };
  // A dying block that is to be freed later.
  struct Deferred {
    CUdeviceptr address = 0;
    CUcontext context = nullptr;  // with which it goes
    std::uint64_t number = 0;
    Bytes due;           // what that will give back, if it depends on us alone
    bool taken = false;  // by a thread that is freeing it now
  };
  using Blocks = std::map<CUdeviceptr, Block>;
  using Ranges = std::map<CUdeviceptr, Range>;
  // Whether work of this process may be on the GPU, which is to be waited for, or only asked about.
  enum class Gpu { may_run, may_be_idle, drained };

  static Moving moving_to_host(Device& device, const HostBudget& budget, HostSystem& system);
  bool bring_back();
  // Of the turn thread, with mutex_ held, which they let go meanwhile.
  bool choose(std::unique_lock<std::mutex>& lock, Bytes excess, std::deque<Leaver>& chosen);
  Mover::Begun begin_out(std::unique_lock<std::mutex>& lock, const Leaver& leaver, Lane lane);
  bool give_up_copy();
  void give_up_copies();
  void drop_copy(Handle& handle);
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
  void add_block(CUdeviceptr address, Bytes size, Range& range);
  Bytes next_arena(Bytes needed) const;
  CUresult grow(CUdeviceptr* address, Bytes size, Bytes range_size, bool arena, Wish wish);
  bool may_grow(Bytes& count, Bytes size, Wish wish);
  void take_back(Bytes& count, Bytes size);  // and reports
  CUresult add_range(Range** added, Bytes size, bool arena, Bytes handle, const CUmemAllocationProp* kind,
                     Wish wish);
  CUresult add_granted(Range** added, Bytes size, bool arena, Bytes handle, const CUmemAllocationProp* kind);
  CUresult back(Range& range);
  CUresult back(Handle& handle);
  void claim_all(std::unique_lock<std::mutex>& lock, Range& range);
  void strike_off(Range& range);
  CUresult take_down(Range& range);
  // Freeing: swap_freeing.cpp.
  std::optional<CUresult> free(CUdeviceptr address, Gpu gpu);
  bool condemn(CUdeviceptr address);
  void reprieve(CUdeviceptr address);
  CUresult free_condemned(CUdeviceptr address, Gpu gpu);
  CUresult free_block(CUdeviceptr address, Gpu gpu);
  bool defers() const;
  void free_deferred(Gpu gpu);
  std::vector<Deferred> take_deferred(std::unique_lock<std::mutex>& lock, CUcontext context);
  Books::Answer within_host_limit();
  Bytes read_host_limit();

  // What stays where it is: swap_settle.cpp. With mutex_ held.
  enum class Found { none, missing, all };
  Found handles_to_settle(std::unique_lock<std::mutex>& lock, CUdeviceptr address, Bytes size,
                          std::vector<Handle*>& found);
  struct Under {
    Range* range = nullptr;   // null: none
    CUdeviceptr address = 0;  // where in the range's own addresses
  };
  Under range_under(CUdeviceptr address, Bytes size);
  void set_place(Handle& handle, Handle::Place place);
  // What the program made itself: swap_program.cpp.
  struct Made {
    Range* range = nullptr;
    std::unique_ptr<const CUmemAllocationProp> kind;
    unsigned references = 1;
    unsigned mappings = 0;
  };
  using AllMade = std::map<Id, Made>;
  CUresult drop_if_unused(std::unique_lock<std::mutex>& lock, Id id);
  void claim_settled(std::unique_lock<std::mutex>& lock, Handle& handle);
  CUresult show(std::unique_lock<std::mutex>& lock, Made& made, CUdeviceptr address);
  CUresult hide(std::unique_lock<std::mutex>& lock, Made& made, CUdeviceptr address);
  std::map<CUdeviceptr, Id>::const_iterator mapping_at(CUdeviceptr address) const;

  // Who may touch a handle. With mutex_ held.
  void claim(Handle& handle);
  void unclaim(Handle& handle);
  void count_resident(Handle& handle);
  void uncount_unmapped(Handle& handle);

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
  mutable std::mutex mutex_;
  std::condition_variable settled_;  // a handle is no longer busy, resident_ fell, or a block was freed late
  Ranges ranges_;
  Blocks blocks_;
  Packing packing_;
  AllMade made_;
  std::map<CUdeviceptr, Id> mappings_;  // the program's, of what it made
  Order order_;                         // of the handles that are not busy
  std::vector<Deferred> deferred_;
  std::uint64_t deferrals_ = 0;
  std::uint64_t allocations_ = 0;
  std::size_t busy_ = 0;
  Bytes swappable_;  // growth that is being asked for included
  Bytes resident_;   // mapped, or about to be
  Bytes pinned_;
  Bytes settling_;  // of the handles that are; in swappable_, resident_ and pinned_
  Bytes context_;
  Bytes allowed_;
  bool lost_ = false;     // what is away stays away
  Bytes host_limit_;      // as last read
  Bytes job_host_limit_;  // the same
  Bytes within_limit_;    // the largest footprint that a limit was seen to allow

  // The turn thread's own.
  Bytes host_peak_;  // the most that was evicted since all was resident
  Eviction last_eviction_;
};

}  // namespace sharedgpu
