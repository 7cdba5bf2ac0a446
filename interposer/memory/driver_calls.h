// SPDX-License-Identifier: Apache-2.0
// The driver functions that a Device calls.
#pragma once

#include <cuda.h>

namespace sharedgpu {

// Three lists: the functions that every Device needs, the functions for fingerprints and fills, and other
// functions. A Device also works with a driver that lacks functions of the last two lists.
// clang-format off
#define SHAREDGPU_NEEDED_CALLS(CALL) \
  CALL(cuMemGetAllocationGranularity) CALL(cuMemAddressReserve) CALL(cuMemAddressFree) CALL(cuMemCreate) \
  CALL(cuMemRelease) CALL(cuMemMap) CALL(cuMemSetAccess) CALL(cuMemUnmap) \
  CALL(cuMemRetainAllocationHandle) CALL(cuCtxPushCurrent_v2) CALL(cuCtxPopCurrent_v2) \
  CALL(cuStreamCreate) CALL(cuStreamDestroy_v2) CALL(cuStreamSynchronize) CALL(cuMemcpyDtoHAsync_v2) \
  CALL(cuMemcpyHtoDAsync_v2) CALL(cuMemHostRegister_v2) CALL(cuMemHostUnregister)
#define SHAREDGPU_LOOK_CALLS(CALL) \
  CALL(cuMemsetD32Async) CALL(cuModuleLoadData) CALL(cuModuleUnload) CALL(cuModuleGetFunction) \
  CALL(cuLaunchKernel) CALL(cuMemHostAlloc) CALL(cuMemFreeHost)
#define SHAREDGPU_OTHER_CALLS(CALL) \
  CALL(cuThreadExchangeStreamCaptureMode) CALL(cuDeviceGetAttribute) CALL(cuMemExportToShareableHandle) \
  CALL(cuMemcpyDtoDAsync_v2)
// clang-format on
#define SHAREDGPU_DRIVER_CALLS(CALL) \
  SHAREDGPU_NEEDED_CALLS(CALL) SHAREDGPU_LOOK_CALLS(CALL) SHAREDGPU_OTHER_CALLS(CALL)

// Pointers to the driver's own functions. Calls through these pointers bypass the interposer's wrappers, so
// their work does not pass the gate.
struct DriverCalls {
#define CALL(name) decltype(&::name) name = nullptr;
  SHAREDGPU_DRIVER_CALLS(CALL)
#undef CALL

  // Sets the calling thread's capture mode to `mode`, and stores the previous mode in `mode`. In the relaxed
  // mode, the thread's calls never invalidate a capture of another thread.
  void exchange(CUstreamCaptureMode& mode) const {
    if (cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode(&mode);
  }
  // Returns true if every required entry is set. The swap backend needs virtual memory management, which
  // drivers before CUDA 10.2 and some GPUs lack.
  bool complete() const;
  // Returns true if the driver has all functions for fingerprints and fills.
  bool can_look() const;
};

}  // namespace sharedgpu
