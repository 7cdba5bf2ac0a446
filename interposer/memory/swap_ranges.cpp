// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_ranges.h"

#include <algorithm>
#include <thread>

namespace sharedgpu {

// The growth is requested before the addresses are reserved, because with the managed backend reserving
// addresses allocates managed memory. If the driver has less memory than the arbiter has granted, some
// process has allocated memory without a request to the arbiter. The second request shows this to the
// arbiter, which answers when the memory is available.
CUresult SwapRanges::add(Range** added, const Form& form, Wish wish) {
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  for (unsigned tries = wish == Wish::needed ? 2 : 1; tries > 0 && result == CUDA_ERROR_OUT_OF_MEMORY;
       --tries) {
    if (!growth_.request(Residency::Count::swappable, form.size, wish)) return CUDA_ERROR_OUT_OF_MEMORY;
    result = add_granted(added, form);
  }
  return result;
}

CUresult SwapRanges::add_granted(Range** added, const Form& form) {
  CUdeviceptr base = 0;
  CUresult result = common_.device.reserve(&base, form.size);
  if (result != CUDA_SUCCESS) {
    growth_.take_back(Residency::Count::swappable, form.size);
    return result;
  }

  Range* range = nullptr;
  {
    const MutexLock lock(common_.mutex);
    common_.wait_for_spare();
    range = &common_.space.add(base, form.size, form.arena, common_.device.goes_with(), form.handle);
    for (Handle& handle : range->handles) handle.kind = form.kind;
    common_.residency.add(*range);
    // The handles for which the window has no room are away from the start.
    for (auto handle = range->handles.rbegin();
         handle != range->handles.rend() && common_.residency.overfull(); ++handle)
      common_.residency.set_away(*handle, true);
  }
  result = back(*range);
  if (result != CUDA_SUCCESS) {
    take_down(*range);
    return result;
  }
  *added = range;
  return CUDA_SUCCESS;
}

// Creates physical memory for each handle of a new range. The calling thread has marked the handles as busy.
// When the function returns, even with an error, the handles are not busy any more.
CUresult SwapRanges::back(Range& range) {
  CUresult result = CUDA_SUCCESS;
  for (Handle& handle : range.handles) {
    if (result == CUDA_SUCCESS) result = back(handle);
    const MutexLock lock(common_.mutex);
    common_.unclaim(handle);
  }
  return result;
}

// Gives the handle physical memory. If the memory would exceed the resident limit, the function succeeds
// without backing the handle, and the next restore() backs it. Checks the limit at each attempt, since the
// arbiter may lower it while this thread waits for the driver.
CUresult SwapRanges::back(Handle& handle) {
  Nanoseconds waited{};
  for (Nanoseconds pause = std::chrono::milliseconds(1);;
       pause = std::min(pause * 2, common_.options.patience / 16)) {
    {
      const MutexLock lock(common_.mutex);
      if (!handle.away && handle.size > common_.residency.room()) return CUDA_SUCCESS;
      common_.residency.count(handle);
    }
    const CUresult result = common_.mover->back(handle);
    if (result == CUDA_SUCCESS) return result;
    {
      const MutexLock lock(common_.mutex);
      common_.residency.uncount_unmapped(handle);
      common_.changed.notify_all();
    }
    if (result != CUDA_ERROR_OUT_OF_MEMORY || handle.away || waited >= common_.options.patience)
      return result;
    std::this_thread::sleep_for(pause);
    waited += pause;
  }
}

// While claim_all() waited for the turn thread, a move may have failed, and copies of the handles may still
// be running. So this function waits for the GPU in this case. The turn thread itself calls this function
// only if no copies are running.
CUresult SwapRanges::take_down(Range& range) {
  MutexLock lock(common_.mutex);
  common_.claim_all(range);
  common_.wait_for_spare();  // an exchange may still keep the memory of a handle of this range
  lock.unlock();
  CUresult result = common_.mover->unsettled() ? common_.device.synchronize() : CUDA_SUCCESS;
  for (Handle& handle : range.handles) {
    if (result == CUDA_SUCCESS && handle.mapped) result = common_.mover->unback(handle);
    if (result == CUDA_SUCCESS) common_.mover->forget(handle);
  }
  lock.lock();
  for (Handle& handle : range.handles) common_.unclaim(handle);
  if (result == CUDA_SUCCESS) {
    const CUdeviceptr base = range.base;
    const Bytes size = range.size;
    common_.residency.strike_off(range);
    common_.space.remove(range);
    lock.unlock();
    common_.device.unreserve(base, size);  // if this fails, only addresses are lost
  } else {
    for (Handle& handle : range.handles)
      if (!handle.mapped) common_.residency.set_place(handle, Handle::Place::free);
    lock.unlock();
  }
  common_.books.report(false);
  return result;
}

// If another thread is moving a handle, waits until the move has ended, since the other thread may have
// mapped the handle with the old access rights.
void SwapRanges::renew_access() {
  std::vector<CUdeviceptr> due;
  MutexLock lock(common_.mutex);
  for (const auto& [base, range] : common_.space.ranges())
    for (const Handle& handle : range.handles) due.push_back(handle.address);
  for (const CUdeviceptr address : due) {
    Handle* handle = common_.space.handle_at(address);
    for (; handle != nullptr && handle->busy; handle = common_.space.handle_at(address))
      common_.changed.wait(common_.mutex);
    if (handle == nullptr || !handle->accessible)
      continue;  // the handle has been freed, or gets the new access rights when it is mapped
    common_.residency.claim(*handle);
    lock.unlock();
    common_.device.allow_access(handle->address, handle->size);
    lock.lock();
    common_.unclaim(*handle);
  }
}

}  // namespace sharedgpu
