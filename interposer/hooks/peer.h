// SPDX-License-Identifier: Apache-2.0
// Peer access: which devices' work may use the memory of which other devices.
//
// Needs no cuda.h, since submit.cpp also wraps functions that the installed cuda.h lacks. Thread-safe.
#pragma once

namespace sharedgpu::hooks {

// Lets work of `device` (a CUdevice) access our memory on `owner` from now on, even if peer access between
// contexts is disabled later.
void open_to_peer(int device, int owner);

// Gives the current context's device access to our memory on all other devices whose memory it can access.
// Returns false if no new access was given.
bool open_to_current();

// Makes a copy by calling `call`. The driver copies cuMemAlloc's memory of any device, whichever context is
// current. The driver copies memory mapped by cuMemMap, such as the interposer's, only if the device of the
// current context has access to this memory. Without access, the driver copies nothing and returns
// CUDA_ERROR_INVALID_VALUE, and a capture stays valid (measured on two H200). If a copy fails with
// CUDA_ERROR_INVALID_VALUE, the function grants access permanently and repeats the copy.
template <class Call>
auto copy_with_access(Call call) {
  constexpr int kInvalidValue = 1;
  const auto result = call();
  if (static_cast<int>(result) != kInvalidValue || !open_to_current()) [[likely]]
    return result;
  return call();
}

}  // namespace sharedgpu::hooks
