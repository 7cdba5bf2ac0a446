// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/swap_mover.h"

#include <utility>

namespace sharedgpu {

CUresult SwapMover::back(Handle& handle) {
  CUresult result = handle.mapped ? CUDA_SUCCESS : map(handle);
  if (result != CUDA_SUCCESS) return result;
  result = device_.allow_access(handle.address, handle.size);
  handle.accessible = result == CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) result = show(handle);
  if (result != CUDA_SUCCESS) unback(handle);
  return result;
}

CUresult SwapMover::show(Handle& handle) {
  if (handle.shown()) return CUDA_SUCCESS;
  Physical physical = 0;
  CUresult result = device_.retain(&physical, handle.address);
  if (result != CUDA_SUCCESS) return result;
  for (View& view : handle.views) {
    if (!view.mapped) result = device_.map(view.address, handle.size, physical);
    view.mapped = result == CUDA_SUCCESS;
    if (view.mapped && !view.access.empty())
      result = device_.set_access(view.address, handle.size, view.access);
    view.ready = result == CUDA_SUCCESS;
    if (!view.ready) break;
  }
  give_back(physical);
  return result;
}

CUresult SwapMover::hide(Handle& handle, View& view) {
  const CUresult result = view.mapped ? device_.unmap(view.address, handle.size) : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) view.mapped = view.ready = false;
  return result;
}

// The reference is given back as soon as the memory is mapped: from then on it lives as long as the mapping,
// and one call, unmap, ends it. So there is no state between "mapped" and "gone" that could fail. A reference
// that stayed would hold the memory for ever, hence the insistence.
CUresult SwapMover::map(Handle& handle) {
  Physical physical = 0;
  CUresult result = device_.create(&physical, handle.size, handle.kind);
  if (result != CUDA_SUCCESS) return result;
  result = device_.map(handle.address, handle.size, physical);
  give_back(physical);
  handle.mapped = result == CUDA_SUCCESS;
  return result;
}

void SwapMover::give_back(Physical physical) {
  for (int attempt = 0; attempt < 3 && device_.release(physical) != CUDA_SUCCESS; ++attempt) {
  }
}

CUresult SwapMover::unback(Handle& handle) {
  CUresult result = CUDA_SUCCESS;
  for (View& view : handle.views)
    if (result == CUDA_SUCCESS) result = hide(handle, view);
  if (result == CUDA_SUCCESS) result = device_.unmap(handle.address, handle.size);
  if (result == CUDA_SUCCESS) handle.mapped = handle.accessible = false;
  return result;
}

void SwapMover::forget(Handle& handle) { pool_.give(std::exchange(handle.host, {})); }

bool SwapMover::begin_out(Handle& handle, Lane lane) {
  if (!handle.on_gpu()) return true;  // no contents, or the host copy is good already: nothing to copy
  std::optional<HostRoom> room = pool_.take(handle.size);
  if (!room) return false;
  filling_[lane.index] = std::move(*room);
  CUdeviceptr from = handle.address;
  for (const HostPiece& piece : filling_[lane.index]) {
    if (device_.copy_out(lane, piece.data, from, piece.size) != CUDA_SUCCESS) {
      settle(lane);
      return false;
    }
    from += piece.size.count;
  }
  return true;
}

bool SwapMover::end_out(Handle& handle, Lane lane) {
  const bool copied = handle.on_gpu();
  if (copied && device_.wait(lane) != CUDA_SUCCESS) {
    settle(lane);
    return false;
  }
  if (unback(handle) != CUDA_SUCCESS) {
    if (copied) settle(lane);
    return false;
  }
  if (copied) handle.host = std::exchange(filling_[lane.index], {});
  return true;
}

CUresult SwapMover::begin_in(Handle& handle, Lane lane) {
  CUresult result = handle.accessible ? show(handle) : back(handle);
  if (result != CUDA_SUCCESS) return result;
  CUdeviceptr to = handle.address;
  for (const HostPiece& piece : handle.host) {
    result = device_.copy_in(lane, to, piece.data, piece.size);
    if (result != CUDA_SUCCESS) {
      if (settle(lane)) unback(handle);
      return result;
    }
    to += piece.size.count;
  }
  return CUDA_SUCCESS;
}

bool SwapMover::end_in(Handle& handle, Lane lane) {
  if (!handle.evicted()) return true;
  if (device_.wait(lane) != CUDA_SUCCESS) {
    if (settle(lane)) unback(handle);
    return false;
  }
  forget(handle);
  return true;
}

bool SwapMover::settle() {
  bool all = true;
  for (unsigned lane = 0; lane < Lane::kCount; ++lane) {
    if (unsettled_[lane]) all &= settle({lane});
  }
  return all;
}

// Room is not used again, nor a mapping undone, while a copy may still be under way there. Whether none is.
bool SwapMover::settle(Lane lane) {
  unsettled_[lane.index] = device_.wait(lane) != CUDA_SUCCESS;
  if (unsettled_[lane.index]) return false;
  pool_.give(std::exchange(filling_[lane.index], {}));
  return true;
}

}  // namespace sharedgpu
