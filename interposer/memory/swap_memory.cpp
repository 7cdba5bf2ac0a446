// SPDX-License-Identifier: Apache-2.0
// Growing, shrinking and looking up. The turns are in swap_turns.cpp.
#include "interposer/memory/swap_memory.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <thread>
#include <utility>

#include "interposer/memory/swap_mover.h"

namespace sharedgpu {

SwapMemory::Moving SwapMemory::moving_to_host(Device& device, const HostBudget& budget, HostSystem& system) {
  auto pool = std::make_unique<HostPool>(device, budget, system, device.granularity());
  auto mover = std::make_unique<SwapMover>(device, *pool);
  return {.pool = std::move(pool), .mover = std::move(mover)};
}

SwapMemory::SwapMemory(Device& device, const HostBudget& budget, HostSystem& system, Books& books,
                       const SwapOptions& options)
    : SwapMemory(device, budget, books, options, moving_to_host(device, budget, system)) {}

SwapMemory::SwapMemory(Device& device, const HostBudget& budget, Books& books, const SwapOptions& options,
                       Moving moving)
    : device_(device),
      budget_(budget),
      books_(books),
      options_(options),
      granularity_(device.granularity()),
      pool_(std::move(moving.pool)),
      mover_(std::move(moving.mover)) {
  read_host_limit();
}

SwapMemory::~SwapMemory() {
  for (auto& [base, range] : ranges_) {
    for (Handle& handle : range.handles) {
      if (handle.mapped) mover_->unback(handle);
    }
    device_.unreserve(base, range.size);
  }
}

Bytes SwapMemory::round_up(Bytes size) const {
  return {(size.count + granularity_.count - 1) / granularity_.count * granularity_.count};
}

CUresult SwapMemory::allocate(CUdeviceptr* address, Bytes size) {
  if (address == nullptr || size.count == 0) return CUDA_ERROR_INVALID_VALUE;
  if (size > kLargestAllocation) return CUDA_ERROR_OUT_OF_MEMORY;
  const Bytes exact = round_up(size);
  return make_room([&](Wish wish) {
    return size < options_.large ? allocate_small(address, size, exact, wish)
                                 : grow(address, size, exact, false, wish);
  });
}

// Another thread may bring the arena that this one lacks: so the next to grow looks again first.
CUresult SwapMemory::allocate_small(CUdeviceptr* address, Bytes size, Bytes exact, Wish wish) {
  if (take_from_arenas(address, size)) return CUDA_SUCCESS;
  const std::lock_guard arenas(arena_growth_);
  if (take_from_arenas(address, size)) return CUDA_SUCCESS;
  const Bytes roomy = next_arena(exact);
  if (roomy != exact) {
    const CUresult result = grow(address, size, roomy, true, Wish::tried);
    if (result != CUDA_ERROR_OUT_OF_MEMORY) return result;
  }
  return grow(address, size, exact, true, wish);
}

// Asks leave for growth of one of the counts that use() tells; without it nothing has changed.
bool SwapMemory::may_grow(Bytes& count, Bytes size, Wish wish) {
  const std::lock_guard one_at_a_time(growth_);
  {
    const std::lock_guard lock(mutex_);
    if (size > minus(kLargestAllocation, count)) return false;
    count += size;
  }
  Books::Answer answer = within_host_limit();
  if (answer.granted) answer = books_.grow();
  if (answer.granted) return true;
  take_back(count, size);
  if (wish == Wish::needed && answer.host_most != Bytes{})
    books_.refused_by_host(answer.host_most, use().footprint() + size);
  return false;
}

void SwapMemory::take_back(Bytes& count, Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    count = minus(count, size);
  }
  books_.report(false);
}

bool SwapMemory::take_from_arenas(CUdeviceptr* address, Bytes size) {
  const std::lock_guard lock(mutex_);
  const std::optional<CUdeviceptr> place = packing_.take(size);
  if (!place) return false;
  Range& arena = std::prev(ranges_.upper_bound(*place))->second;
  add_block(*place, size, arena);
  *address = *place;
  return true;
}

// With mutex_ held. The handles are the most recently used now.
void SwapMemory::add_block(CUdeviceptr address, Bytes size, Range& range) {
  blocks_.insert_or_assign(address, Block{size, &range});
  ++allocations_;
  for (Handle& handle : range.handles) {
    if (handle.busy) continue;  // being moved: it keeps its place in the order
    order_.remove(handle);
    handle.last_used = allocations_;
    order_.insert(handle);
  }
}

// Arenas grow with use, so that many small blocks share few handles while what is not used stays below a
// quarter of the whole.
Bytes SwapMemory::next_arena(Bytes needed) const {
  const std::lock_guard lock(mutex_);
  const Bytes quarter = std::min(Bytes{packing_.total().count / 4}, options_.largest_arena);
  const Bytes size{std::bit_floor(quarter.count)};
  return std::max(round_up(size), needed);
}

CUresult SwapMemory::grow(CUdeviceptr* address, Bytes size, Bytes range_size, bool arena, Wish wish) {
  Range* range = nullptr;
  const CUresult result =
      add_range(&range, range_size, arena, arena ? range_size : options_.handle, nullptr, wish);
  if (result != CUDA_SUCCESS) return result;
  {
    const std::lock_guard lock(mutex_);
    if (arena) packing_.add_region(range->base, range_size, size);
    add_block(range->base, size, *range);
    *address = range->base;
  }
  books_.report(false);  // leave was asked before anything was resident
  return CUDA_SUCCESS;
}

// Asks leave, reserves addresses, and puts physical memory there as far as it may, in handles of
// `handle_size`. In this order: with the managed backend the addresses are managed memory, of which there is
// not to be more than fits. Where the driver has less than was granted, somebody has taken it without asking;
// the arbiter sees that by the next time it is asked, and its answer comes when the memory is there.
CUresult SwapMemory::add_range(Range** added, Bytes range_size, bool arena, Bytes handle_size,
                               const CUmemAllocationProp* kind, Wish wish) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned tries = wish == Wish::needed ? 2 : 1; tries > 0 && result == CUDA_ERROR_OUT_OF_MEMORY;
       --tries) {
    if (!may_grow(swappable_, range_size, wish)) return CUDA_ERROR_OUT_OF_MEMORY;
    result = add_granted(added, range_size, arena, handle_size, kind);
  }
  return result;
}

CUresult SwapMemory::add_granted(Range** added, Bytes range_size, bool arena, Bytes handle_size,
                                 const CUmemAllocationProp* kind) {
  CUdeviceptr base = 0;
  CUresult result = device_.reserve(&base, range_size);
  if (result != CUDA_SUCCESS) {
    take_back(swappable_, range_size);
    return result;
  }

  Range* range = nullptr;
  {
    const std::lock_guard lock(mutex_);
    range = &ranges_.emplace(base, Range{base, range_size, arena, device_.goes_with(), {}}).first->second;
    range->handles = cut_into_handles(*range, handle_size);
    ++allocations_;
    for (Handle& handle : range->handles) {
      handle.last_used = allocations_;
      handle.kind = kind;
      handle.busy = true;
      ++busy_;
    }
  }
  result = back(*range);
  if (result != CUDA_SUCCESS) {
    take_down(*range);
    return result;
  }
  *added = range;
  return CUDA_SUCCESS;
}

// Whether the host budget could ever hold the footprint. The limits are read anew only when it grows, and by
// tend().
Books::Answer SwapMemory::within_host_limit() {
  std::unique_lock lock(mutex_);
  const Bytes footprint = swappable_;
  if (footprint <= within_limit_) return {.granted = true};
  lock.unlock();
  const Bytes limit = read_host_limit();
  if (limit != Bytes{} && limit < footprint) return {.granted = false, .host_most = limit};
  lock.lock();
  within_limit_ = std::max(within_limit_, footprint);
  return {.granted = true};
}

// Zero: none. The arbiter judges by it for all processes of a job together.
Bytes SwapMemory::read_host_limit() {
  const auto told = [](std::optional<Bytes> limit) { return limit ? std::max(*limit, Bytes{1}) : Bytes{}; };
  const Bytes limit = told(budget_.limit());
  const Bytes of_job = told(budget_.job_limit());
  const std::lock_guard lock(mutex_);
  host_limit_ = limit;
  job_host_limit_ = of_job;
  return limit;
}

// Backs the claimed handles of a new range and lets them go, whatever happens.
CUresult SwapMemory::back(Range& range) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : range.handles) {
    if (result == CUDA_SUCCESS) result = back(handle);
    const std::lock_guard lock(mutex_);
    unclaim(handle);
  }
  return result;
}

// Success also where `allowed` has no room: the memory then comes with the next restore(). The arbiter may
// take room back while we wait for the driver, so it is looked at each time.
CUresult SwapMemory::back(Handle& handle) {
  Nanoseconds waited{};
  for (Nanoseconds pause = std::chrono::milliseconds(1);;
       pause = std::min(pause * 2, options_.patience / 16)) {
    {
      const std::lock_guard lock(mutex_);
      if (resident_ + handle.size > allowed_) return CUDA_SUCCESS;
      count_resident(handle);
    }
    const CUresult result = mover_->back(handle);
    if (result == CUDA_SUCCESS) return result;
    {
      const std::lock_guard lock(mutex_);
      uncount_unmapped(handle);
      settled_.notify_all();
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || waited >= options_.patience) return result;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
}

// With mutex_ held: waits for whoever moves its handles.
void SwapMemory::claim_all(std::unique_lock<std::mutex>& lock, Range& range) {
  for (Handle& handle : range.handles) {
    settled_.wait(lock, [&] { return !handle.busy; });
    claim(handle);
  }
}

// With mutex_ held: a range that is unmapped and unclaimed counts no more.
void SwapMemory::strike_off(Range& range) {
  for (Handle& handle : range.handles) {
    set_place(handle, Handle::Place::free);
    order_.remove(handle);
    swappable_ -= handle.size;
  }
}

// Gives a range back that nothing uses any more: waits for whoever moves its handles, then unmaps. On failure
// the range stays, with what could not be unmapped in it.
CUresult SwapMemory::take_down(Range& range) {
  std::unique_lock lock(mutex_);
  claim_all(lock, range);
  lock.unlock();
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : range.handles) {
    if (result == CUDA_SUCCESS && handle.mapped) result = mover_->unback(handle);
    if (result == CUDA_SUCCESS) mover_->forget(handle);
  }
  lock.lock();
  for (Handle& handle : range.handles) unclaim(handle);
  if (result == CUDA_SUCCESS) {
    const CUdeviceptr base = range.base;
    const Bytes size = range.size;
    strike_off(range);
    ranges_.erase(base);
    lock.unlock();
    device_.unreserve(base, size);  // a failure costs addresses only
  } else {
    for (Handle& handle : range.handles)
      if (!handle.mapped) set_place(handle, Handle::Place::free);
    lock.unlock();
  }
  books_.report(false);
  return result;
}

std::optional<AddressRange> SwapMemory::find(CUdeviceptr address) const {
  const std::lock_guard lock(mutex_);
  const auto after = blocks_.upper_bound(address);
  if (after == blocks_.begin()) return std::nullopt;
  const auto& [base, block] = *std::prev(after);
  if (block.dying || address - base >= block.size.count) return std::nullopt;
  return AddressRange{base, block.size};
}

// What another thread is moving gets its access when it is mapped, or had got it before: so it is waited for.
void SwapMemory::renew_access() {
  std::vector<CUdeviceptr> due;
  std::unique_lock lock(mutex_);
  for (const auto& [base, range] : ranges_)
    for (const Handle& handle : range.handles) due.push_back(handle.address);
  for (const CUdeviceptr address : due) {
    for (;;) {
      const auto after = ranges_.upper_bound(address);
      if (after == ranges_.begin()) break;
      std::vector<Handle>& handles = std::prev(after)->second.handles;
      const auto handle = std::find_if(handles.begin(), handles.end(),
                                       [address](const Handle& each) { return each.address == address; });
      if (handle == handles.end()) break;  // freed meanwhile
      if (handle->busy) {
        settled_.wait(lock);
        continue;
      }
      if (!handle->accessible) break;
      claim(*handle);
      lock.unlock();
      device_.allow_access(handle->address, handle->size);
      lock.lock();
      unclaim(*handle);
      break;
    }
  }
}

CUresult SwapMemory::pin(Bytes size) {
  return make_room(
      [&](Wish wish) { return may_grow(pinned_, size, wish) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY; });
}

void SwapMemory::unpin(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    pinned_ = minus(pinned_, size);
  }
  books_.report(false);
}

void SwapMemory::pin_unasked(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    pinned_ += size;
  }
  books_.claim();
}

void SwapMemory::set_context_size(Bytes size) {
  {
    const std::lock_guard lock(mutex_);
    if (context_ == size) return;
    context_ = size;
  }
  books_.report(false);
}

// The pool never holds more than what the books know of: so what a job's processes hold together stays within
// what the arbiter grants them.
MemoryUse SwapMemory::use() const {
  const std::lock_guard lock(mutex_);
  return {lost_ ? resident_ : swappable_,
          resident_,
          pinned_,
          context_,
          pool_ ? pool_->bound(swappable_) : mover_->host_held(),
          settling_,
          host_limit_};
}

Bytes SwapMemory::job_host_limit() const {
  const std::lock_guard lock(mutex_);
  return job_host_limit_;
}

void SwapMemory::set_allowed(Bytes allowed) {
  const std::lock_guard lock(mutex_);
  allowed_ = allowed;
  settled_.notify_all();  // an evict() under way may have less to do now
}

Bytes SwapMemory::allowed() const {
  const std::lock_guard lock(mutex_);
  return allowed_;
}

std::vector<Handle> SwapMemory::handles() const {
  const std::lock_guard lock(mutex_);
  std::vector<Handle> all;
  for (const auto& [base, range] : ranges_) all.insert(all.end(), range.handles.begin(), range.handles.end());
  return all;
}

void SwapMemory::claim(Handle& handle) {
  order_.remove(handle);
  handle.busy = true;
  ++busy_;
}

void SwapMemory::unclaim(Handle& handle) {
  uncount_unmapped(handle);
  handle.busy = false;
  --busy_;
  order_.insert(handle);
  settled_.notify_all();
}

void SwapMemory::count_resident(Handle& handle) {
  if (handle.counted || handle.place == Handle::Place::settled) return;
  handle.counted = true;
  resident_ += handle.size;
}

void SwapMemory::uncount_unmapped(Handle& handle) {
  if (handle.mapped || !handle.counted) return;
  handle.counted = false;
  resident_ -= handle.size;
}

}  // namespace sharedgpu
