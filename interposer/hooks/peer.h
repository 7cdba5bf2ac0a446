// SPDX-License-Identifier: Apache-2.0
// Which device's work may use the memory of which other one.
//
// Needs no cuda.h, since submit.cpp wraps functions that the one at hand does not know. Safe from all
// threads.
#pragma once

namespace sharedgpu::hooks {

// Work of `device` (a CUdevice) may access our memory of `owner` from now on, whatever becomes of the peer
// access between contexts.
void open_to_peer(int device, int owner);

// The same for the current context's device and our memory of all other ones that it can reach. False: there
// was nothing to open.
bool open_to_current();

// Does a copy. The driver copies cuMemAlloc's memory of any device whichever context is current, but mapped
// memory, which ours is, only for a device that has access to it: else it does nothing and says
// CUDA_ERROR_INVALID_VALUE, in a capture too, which goes on (measured on two H200). Then access is given,
// once and for all, and the copy done again.
template <class Call>
auto copy_with_access(Call call) {
  constexpr int kInvalidValue = 1;
  const auto result = call();
  if (static_cast<int>(result) != kInvalidValue || !open_to_current()) [[likely]]
    return result;
  return call();
}

}  // namespace sharedgpu::hooks
