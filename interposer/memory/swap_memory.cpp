// SPDX-License-Identifier: Apache-2.0
// Growing, shrinking and lookup. Eviction and restore are in swap_turns.cpp.
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
  const MutexLock lock(mutex_);
  for (auto& [base, range] : space_.ranges()) {
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

// Another thread may add the arena that this one needs, so a thread checks again before it grows.
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

// Requests growth of one of the counts that use() reports. A refusal leaves them unchanged.
bool SwapMemory::may_grow(Residency::Count count, Bytes size, Wish wish) {
  const std::lock_guard one_at_a_time(growth_);
  {
    const MutexLock lock(mutex_);
    if (!residency_.grow(count, size)) return false;
  }
  Books::Answer answer = within_host_limit();
  if (answer.granted) answer = books_.grow();
  if (answer.granted) return true;
  take_back(count, size);
  if (wish == Wish::needed && answer.host_most != Bytes{})
    books_.refused_by_host(answer.host_most, use().footprint() + size);
  return false;
}

void SwapMemory::take_back(Residency::Count count, Bytes size) {
  {
    const MutexLock lock(mutex_);
    residency_.shrink(count, size);
  }
  books_.report(false);
}

bool SwapMemory::take_from_arenas(CUdeviceptr* address, Bytes size) {
  const MutexLock lock(mutex_);
  Range* const arena = space_.take_from_arenas(address, size);
  if (arena != nullptr) note_use(*arena);
  return arena != nullptr;
}

// Makes the handles the most recently used ones.
void SwapMemory::note_use(Range& range) {
  const std::uint64_t now = ++allocations_;
  for (Handle& handle : range.handles)  // a handle that is being moved keeps its place
    if (!handle.busy) residency_.change(handle, [&] { handle.last_used = now; });
}

// Arenas grow with use, so that many small blocks share few handles, while the unused part stays below a
// quarter of the whole.
Bytes SwapMemory::next_arena(Bytes needed) const {
  const MutexLock lock(mutex_);
  const Bytes quarter = std::min(Bytes{space_.arenas().count / 4}, options_.largest_arena);
  const Bytes size{std::bit_floor(quarter.count)};
  return std::max(round_up(size), needed);
}

CUresult SwapMemory::grow(CUdeviceptr* address, Bytes size, Bytes range_size, bool arena, Wish wish) {
  Range* range = nullptr;
  const CUresult result =
      add_range(&range, range_size, arena, arena ? range_size : options_.handle, nullptr, wish);
  if (result != CUDA_SUCCESS) return result;
  {
    const MutexLock lock(mutex_);
    space_.add_block(*range, size);
    note_use(*range);
    *address = range->base;
  }
  books_.report(false);  // growth was requested before anything was resident
  return CUDA_SUCCESS;
}

// Requests growth, reserves addresses, and backs them as far as permitted, in handles of `handle_size`. The
// order matters: with the managed backend the addresses are managed memory, of which there must not be more
// than fits. If the driver has less than was granted, memory was taken without a request; the arbiter knows
// that by the next request, and answers it when the memory is available.
CUresult SwapMemory::add_range(Range** added, Bytes range_size, bool arena, Bytes handle_size,
                               const CUmemAllocationProp* kind, Wish wish) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned tries = wish == Wish::needed ? 2 : 1; tries > 0 && result == CUDA_ERROR_OUT_OF_MEMORY;
       --tries) {
    if (!may_grow(Residency::Count::swappable, range_size, wish)) return CUDA_ERROR_OUT_OF_MEMORY;
    result = add_granted(added, range_size, arena, handle_size, kind);
  }
  return result;
}

CUresult SwapMemory::add_granted(Range** added, Bytes range_size, bool arena, Bytes handle_size,
                                 const CUmemAllocationProp* kind) {
  CUdeviceptr base = 0;
  CUresult result = device_.reserve(&base, range_size);
  if (result != CUDA_SUCCESS) {
    take_back(Residency::Count::swappable, range_size);
    return result;
  }

  Range* range = nullptr;
  {
    const MutexLock lock(mutex_);
    range = &space_.add(base, range_size, arena, device_.goes_with(), handle_size);
    ++allocations_;
    for (Handle& handle : range->handles) {
      handle.last_used = allocations_;
      handle.kind = kind;
      residency_.add(handle);
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

// Checks that the host budget could ever hold the footprint. The limits are read again only when the
// footprint grows, and by tend().
Books::Answer SwapMemory::within_host_limit() {
  MutexLock lock(mutex_);
  const Bytes footprint = residency_.swappable();
  if (footprint <= within_limit_) return {.granted = true};
  lock.unlock();
  const Bytes limit = read_host_limit();
  if (limit != Bytes{} && limit < footprint) return {.granted = false, .host_most = limit};
  lock.lock();
  within_limit_ = std::max(within_limit_, footprint);
  return {.granted = true};
}

// Returns zero if there is no limit. The arbiter applies the limit to all processes of a job together.
Bytes SwapMemory::read_host_limit() {
  const auto told = [](std::optional<Bytes> limit) { return limit ? std::max(*limit, Bytes{1}) : Bytes{}; };
  const Bytes limit = told(budget_.limit());
  const Bytes of_job = told(budget_.job_limit());
  const MutexLock lock(mutex_);
  host_limit_ = limit;
  job_host_limit_ = of_job;
  return limit;
}

// Backs the acquired handles of a new range, and releases them in any case.
CUresult SwapMemory::back(Range& range) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : range.handles) {
    if (result == CUDA_SUCCESS) result = back(handle);
    const MutexLock lock(mutex_);
    unclaim(handle);
  }
  return result;
}

// Succeeds also if the resident limit has no room: the next restore() then backs the handle. The arbiter may
// lower the limit while we wait for the driver, so it is checked each time.
CUresult SwapMemory::back(Handle& handle) {
  Nanoseconds waited{};
  for (Nanoseconds pause = std::chrono::milliseconds(1);;
       pause = std::min(pause * 2, options_.patience / 16)) {
    {
      const MutexLock lock(mutex_);
      if (residency_.resident() + handle.size > residency_.allowed()) return CUDA_SUCCESS;
      residency_.count(handle);
    }
    const CUresult result = mover_->back(handle);
    if (result == CUDA_SUCCESS) return result;
    {
      const MutexLock lock(mutex_);
      residency_.uncount_unmapped(handle);
      settled_.notify_all();
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || waited >= options_.patience) return result;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
}

// Waits for the threads that move its handles.
void SwapMemory::claim_all(Range& range) {
  for (Handle& handle : range.handles) wait_and_claim(handle);
}

// Releases a range that nothing uses: waits for the threads that move its handles, then unmaps. On failure
// the range stays, with the handles that could not be unmapped.
CUresult SwapMemory::take_down(Range& range) {
  MutexLock lock(mutex_);
  claim_all(range);
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
    residency_.strike_off(range);
    space_.remove(range);
    lock.unlock();
    device_.unreserve(base, size);  // a failure only leaks addresses
  } else {
    for (Handle& handle : range.handles)
      if (!handle.mapped) residency_.set_place(handle, Handle::Place::free);
    lock.unlock();
  }
  books_.report(false);
  return result;
}

std::optional<AddressRange> SwapMemory::find(CUdeviceptr address) const {
  const MutexLock lock(mutex_);
  return space_.find(address);
}

// A handle that another thread is moving may have been mapped with the old access, so this waits for it.
void SwapMemory::renew_access() {
  std::vector<CUdeviceptr> due;
  MutexLock lock(mutex_);
  for (const auto& [base, range] : space_.ranges())
    for (const Handle& handle : range.handles) due.push_back(handle.address);
  for (const CUdeviceptr address : due) {
    Handle* handle = space_.handle_at(address);
    for (; handle != nullptr && handle->busy; handle = space_.handle_at(address)) settled_.wait(mutex_);
    if (handle == nullptr || !handle->accessible) continue;  // freed, or gets access when mapped
    residency_.claim(*handle);
    lock.unlock();
    device_.allow_access(handle->address, handle->size);
    lock.lock();
    unclaim(*handle);
  }
}

CUresult SwapMemory::pin(Bytes size) {
  return make_room([&](Wish wish) {
    return may_grow(Residency::Count::pinned, size, wish) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
  });
}

void SwapMemory::unpin(Bytes size) {
  {
    const MutexLock lock(mutex_);
    residency_.shrink(Residency::Count::pinned, size);
  }
  books_.report(false);
}

void SwapMemory::pin_unasked(Bytes size) {
  {
    const MutexLock lock(mutex_);
    residency_.pin(size);
  }
  books_.claim();
}

void SwapMemory::set_context_size(Bytes size) {
  {
    const MutexLock lock(mutex_);
    if (context_ == size) return;
    context_ = size;
  }
  books_.report(false);
}

// The pool never holds more than this reports, so the job's processes together stay within the arbiter's
// grant.
MemoryUse SwapMemory::use() const {
  const MutexLock lock(mutex_);
  const Bytes swappable = residency_.swappable();
  return {lost_ ? residency_.resident() : swappable,
          residency_.resident(),
          residency_.pinned(),
          context_,
          pool_ ? pool_->bound(swappable) : mover_->host_held(),
          residency_.settling(),
          host_limit_};
}

Bytes SwapMemory::job_host_limit() const {
  const MutexLock lock(mutex_);
  return job_host_limit_;
}

void SwapMemory::set_allowed(Bytes allowed) {
  const MutexLock lock(mutex_);
  residency_.set_allowed(allowed);
  settled_.notify_all();  // an evict() in progress may have less to do now
}

Bytes SwapMemory::allowed() const {
  const MutexLock lock(mutex_);
  return residency_.allowed();
}

std::vector<Handle> SwapMemory::handles() const {
  const MutexLock lock(mutex_);
  std::vector<Handle> all;
  for (const auto& [base, range] : space_.ranges())
    all.insert(all.end(), range.handles.begin(), range.handles.end());
  return all;
}

void SwapMemory::wait_and_claim(Handle& handle) {
  while (handle.busy) settled_.wait(mutex_);
  residency_.claim(handle);
}

void SwapMemory::unclaim(Handle& handle) {
  residency_.unclaim(handle);
  settled_.notify_all();
}

}  // namespace sharedgpu
