// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/managed_mover.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {
namespace {

// Host memory is reserved in the budget in steps of this size, so that the budget need not be read for each
// handle.
constexpr Bytes kRoomStep = mebibytes(128);

}  // namespace

CUresult ManagedMover::back(Handle& handle) {
  if (handle.away) {
    if (device_.keep_on(Device::Side::host, handle.address, handle.size) != CUDA_SUCCESS)
      return CUDA_ERROR_OUT_OF_MEMORY;
    promise(handle);
  }
  handle.mapped = handle.accessible = true;
  return CUDA_SUCCESS;
}

CUresult ManagedMover::unback(Handle& handle) {
  handle.mapped = handle.accessible = false;
  return CUDA_SUCCESS;
}

void ManagedMover::forget(Handle& handle) {
  drop_promise(handle);
  if (std::exchange(handle.host_pages, false) && !handle.away) held_ -= handle.size.count;
}

void ManagedMover::promise(Handle& handle) {
  handle.promised = true;
  promised_ += handle.size.count;
  budget_.take_uncharged(handle.size);
}

void ManagedMover::drop_promise(Handle& handle) {
  if (!std::exchange(handle.promised, false)) return;
  promised_ -= handle.size.count;
  budget_.give_uncharged(handle.size);
}

// Waits for prefetches that are still in flight: a prefetch must not begin while a prefetch of the same pages
// in the other direction is in flight.
bool ManagedMover::settle() {
  room_ = {};  // forgets host memory that was reserved in the previous turn and not used
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

Mover::Begun ManagedMover::begin_prefetch_to_host(const Handle& handle, Lane lane) {
  if (!handle.host_pages && !take_room(handle.size)) return Begun::no_room;
  if (device_.prefetch(lane, handle.address, handle.size, Device::Side::host) == CUDA_SUCCESS)
    return Begun::yes;
  if (!handle.host_pages) under_way_ -= handle.size;
  return Begun::failed;
}

bool ManagedMover::end_prefetch_to_host(const Handle& handle, Lane lane) {
  const bool arrived = wait(lane);
  if (!handle.host_pages) under_way_ -= handle.size;
  return arrived;
}

Mover::Begun ManagedMover::begin_out(const Leaver& leaver, Lane lane) {
  return leaver.handle->on_gpu() ? begin_prefetch_to_host(*leaver.handle, lane) : Begun::yes;
}

// If the wait fails, the pages may be on the GPU or on the host. In this case the handle is still counted as
// resident, so that the reported resident memory is never too small.
bool ManagedMover::end_out(Handle& handle, Lane lane) {
  if (!handle.on_gpu()) return true;
  if (!end_prefetch_to_host(handle, lane)) return false;
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
  if (handle.away) return back(handle);
  const CUresult result = device_.prefetch(lane, handle.address, handle.size, Device::Side::gpu);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? result : back(handle);
}

bool ManagedMover::end_in(Handle& /*handle*/, Lane lane) {
  wait(lane);
  return true;
}

// The driver may leave the pages of a handle in the window where they are, so either advice is right for it.
Mover::Begun ManagedMover::begin_leave(Handle& handle, Lane lane) {
  if (device_.keep_on(Device::Side::host, handle.address, handle.size) != CUDA_SUCCESS) {
    device_.keep_on(Device::Side::gpu, handle.address, handle.size);
    return Begun::failed;
  }
  const Begun begun = begin_prefetch_to_host(handle, lane);
  if (begun != Begun::yes) device_.keep_on(Device::Side::gpu, handle.address, handle.size);
  return begun;
}

bool ManagedMover::end_leave(Handle& handle, Lane lane) {
  if (!end_prefetch_to_host(handle, lane)) {
    device_.keep_on(Device::Side::gpu, handle.address, handle.size);
    return false;
  }
  if (std::exchange(handle.host_pages, true)) held_ -= handle.size.count;
  evicted_ += handle.size.count;
  return true;
}

// A prefetch moves pages whatever the advice is. Until they have arrived, work uses those on the host over
// the bus, so that no fault moves them, too.
bool ManagedMover::begin_enter(Handle& handle, Lane lane) {
  if (device_.prefetch(lane, handle.address, handle.size, Device::Side::gpu) != CUDA_SUCCESS) return false;
  drop_promise(handle);
  if (handle.host_pages) {
    held_ += handle.size.count;
    restored_ += handle.size.count;
  }
  return true;
}

// Whatever fails, the handle is in the window now.
bool ManagedMover::end_enter(Handle& handle, Lane lane) {
  wait(lane);
  device_.keep_on(Device::Side::gpu, handle.address, handle.size);
  return true;
}

bool ManagedMover::keep_promise(Handle& handle) {
  constexpr Lane kLane{0};
  if (!handle.promised) return true;
  if (device_.prefetch(kLane, handle.address, handle.size, Device::Side::host) != CUDA_SUCCESS ||
      !wait(kLane))
    return false;
  handle.host_pages = true;
  drop_promise(handle);
  return true;
}

}  // namespace sharedgpu
