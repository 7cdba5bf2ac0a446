// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/launch_fences.h"

#include <algorithm>
#include <set>

#include "interposer/driver/beside_captures.h"
#include "interposer/driver/call.h"

namespace sharedgpu::session {

bool LaunchFences::add(CUstream stream, Number launch) {
  const driver::BesideCaptures beside;
  Fence fence{.event = nullptr, .stream = stream, .launch = launch};
  if (SHAREDGPU_REAL(cuEventCreate, &fence.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  if (SHAREDGPU_REAL(cuEventRecord, fence.event, stream) != CUDA_SUCCESS) {
    SHAREDGPU_REAL(cuEventDestroy_v2, fence.event);
    return false;
  }
  const std::lock_guard lock(mutex_);
  fences_.push_back(fence);
  return true;
}

// The launches of one stream end in their order, so only the first one that has not ended is queried.
std::vector<LaunchFences::Number> LaunchFences::take_ended() {
  std::vector<Number> ended;
  const std::lock_guard lock(mutex_);
  if (fences_.empty()) return ended;
  const driver::BesideCaptures beside;
  std::set<CUstream> busy;
  std::erase_if(fences_, [&](const Fence& fence) {
    if (busy.contains(fence.stream)) return false;
    if (SHAREDGPU_REAL(cuEventQuery, fence.event) == CUDA_ERROR_NOT_READY) {
      busy.insert(fence.stream);
      return false;
    }
    SHAREDGPU_REAL(cuEventDestroy_v2, fence.event);
    ended.push_back(fence.launch);
    return true;
  });
  return ended;
}

std::vector<LaunchFences::Number> LaunchFences::take_all() {
  std::vector<Number> all;
  const std::lock_guard lock(mutex_);
  if (fences_.empty()) return all;
  const driver::BesideCaptures beside;
  for (const Fence& fence : fences_) {
    SHAREDGPU_REAL(cuEventDestroy_v2, fence.event);
    all.push_back(fence.launch);
  }
  fences_.clear();
  return all;
}

}  // namespace sharedgpu::session
