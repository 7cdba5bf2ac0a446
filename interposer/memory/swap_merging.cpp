// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_merging.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace sharedgpu {
namespace {

constexpr Nanoseconds kPause = std::chrono::milliseconds(10);  // the pause between two attempts to create
                                                               // memory

// Returns the handle that replaces all handles of the range, which have been evicted to host memory. If the
// driver has refused to unmap the memory at one of the program's addresses, some of the handles have no view
// at this address.
Handle as_one(const Range& range) {
  Handle whole;
  whole.address = range.base;
  whole.size = range.size;
  whole.contents = Handle::Contents::in_room;
  whole.kind = range.handles.front().kind;
  whole.last_used = range.handles.front().last_used;
  whole.busy = true;
  for (const Handle& handle : range.handles) {
    whole.host.insert(whole.host.end(), handle.host.begin(), handle.host.end());
    for (const View& view : handle.views) {
      const CUdeviceptr at = view.address - (handle.address - range.base);
      if (std::ranges::find(whole.views, at, &View::address) == whole.views.end())
        whole.views.push_back({.address = at, .access = view.access});
    }
  }
  return whole;
}

}  // namespace

CUresult SwapMerging::merge(Range& range) {
  const DeviceScope scope(common_.device);
  if (!scope.ok() || !common_.mover->settle()) return CUDA_ERROR_UNKNOWN;
  {
    const MutexLock lock(common_.mutex);
    common_.claim_all(range);
  }
  const bool here = std::ranges::all_of(
      range.handles, [](const Handle& handle) { return handle.on_gpu() && handle.shown(); });
  CUresult result = here ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  for (Handle& handle : range.handles)
    if (result == CUDA_SUCCESS) result = turns_.evict(handle);
  if (result == CUDA_SUCCESS) result = restore_as_one(range);
  {
    const MutexLock lock(common_.mutex);
    for (Handle& handle : range.handles) common_.unclaim(handle);
  }
  common_.books.report(false);
  return result;
}

// The range keeps its handles until the new handle has memory, so that an evicted handle can be restored if
// the driver has no memory for the new one. If a later step fails and the driver refuses to unmap the new
// memory, the new handle replaces the others, and the next restore copies its contents.
CUresult SwapMerging::restore_as_one(Range& range) {
  Handle whole = as_one(range);
  const Lane lane;
  CUresult result = common_.mover->begin_in(whole, lane);
  // The driver may still be freeing the memory of the evicted handles.
  for (Nanoseconds waited{}; result == CUDA_ERROR_OUT_OF_MEMORY && waited < common_.options.patience;
       waited += kPause) {
    std::this_thread::sleep_for(kPause);
    result = common_.mover->begin_in(whole, lane);
  }
  if (result == CUDA_SUCCESS && !common_.mover->end_in(whole, lane)) result = CUDA_ERROR_UNKNOWN;
  const MutexLock lock(common_.mutex);
  if (whole.mapped) common_.residency.replace(range, std::move(whole));
  return result;
}

}  // namespace sharedgpu
