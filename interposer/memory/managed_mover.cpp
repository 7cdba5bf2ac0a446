// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_mover.h"

#include <algorithm>

namespace sharedgpu {
namespace {

// The mover checks once whether the budget has this much host memory. So the budget need not be read for each
// handle.
constexpr Bytes kRoomStep = mebibytes(128);

}  // namespace

CUresult ManagedMover::back(Handle& handle) {
  handle.mapped = handle.accessible = true;
  return CUDA_SUCCESS;
}

CUresult ManagedMover::unback(Handle& handle) {
  handle.mapped = handle.accessible = false;
  return CUDA_SUCCESS;
}

void ManagedMover::forget(Handle& handle) {
  if (!handle.host_pages) return;
  handle.host_pages = false;
  held_ -= handle.size.count;
}

// Waits for prefetches that may still be running: a prefetch must not begin while a prefetch of the same
// pages runs in the other direction.
bool ManagedMover::settle() {
  room_ = {};  // so that the next eviction reads the budget again
  under_way_ = {};
  for (unsigned lane = 0; lane < Lane::kCount; ++lane)
    if (late_[lane]) wait({lane});
  return true;
}

bool ManagedMover::wait(Lane lane) {
  late_[lane.index] = device_.wait(lane) != CUDA_SUCCESS;
  return !late_[lane.index];
}

bool ManagedMover::take_room(Bytes size) {
  if (room_ < size) room_ = std::min(std::max(size, kRoomStep), minus(budget_.room(), under_way_));
  if (room_ < size) return false;
  room_ -= size;
  under_way_ += size;
  return true;
}

Mover::Begun ManagedMover::begin_out(const Leaver& leaver, Lane lane) {
  const Handle& handle = *leaver.handle;
  if (!handle.on_gpu()) return Begun::yes;
  if (!handle.host_pages && !take_room(handle.size)) return Begun::no_room;
  if (device_.prefetch(lane, handle.address, handle.size, Device::Side::host) == CUDA_SUCCESS)
    return Begun::yes;
  if (!handle.host_pages) under_way_ -= handle.size;
  return Begun::failed;
}

// If the wait fails, the pages may be on the GPU or on the host. In this case the handle is still counted as
// resident, so that the reported resident memory is never too small.
bool ManagedMover::end_out(Handle& handle, Lane lane) {
  if (!handle.on_gpu()) return true;
  const bool arrived = wait(lane);
  if (!handle.host_pages) under_way_ -= handle.size;
  if (!arrived) return false;
  if (!handle.host_pages) {
    handle.host_pages = true;
    held_ += handle.size.count;
  }
  unback(handle);
  return true;
}

// Only a lack of memory may be temporary, so the restore is repeated only after this error. After any other
// failure, page faults bring the pages to the GPU, or the program gets the same error.
CUresult ManagedMover::begin_in(Handle& handle, Lane lane) {
  if (handle.mapped) return CUDA_SUCCESS;
  const CUresult result = device_.prefetch(lane, handle.address, handle.size, Device::Side::gpu);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? result : back(handle);
}

bool ManagedMover::end_in(Handle& /*handle*/, Lane lane) {
  wait(lane);
  return true;
}

}  // namespace sharedgpu
