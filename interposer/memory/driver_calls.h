// SPDX-License-Identifier: Apache-2.0
// The driver functions that a Device is built on.
#pragma once

#include <cuda.h>

namespace sharedgpu {

// The real driver's entry points, never our own wrappers: work launched through them passes no gate. Entries
// from cuThreadExchangeStreamCaptureMode on may be null.
struct DriverCalls {
  decltype(&::cuMemGetAllocationGranularity) cuMemGetAllocationGranularity = nullptr;
  decltype(&::cuMemAddressReserve) cuMemAddressReserve = nullptr;
  decltype(&::cuMemAddressFree) cuMemAddressFree = nullptr;
  decltype(&::cuMemCreate) cuMemCreate = nullptr;
  decltype(&::cuMemRelease) cuMemRelease = nullptr;
  decltype(&::cuMemMap) cuMemMap = nullptr;
  decltype(&::cuMemSetAccess) cuMemSetAccess = nullptr;
  decltype(&::cuMemUnmap) cuMemUnmap = nullptr;
  decltype(&::cuMemRetainAllocationHandle) cuMemRetainAllocationHandle = nullptr;
  decltype(&::cuCtxPushCurrent_v2) cuCtxPushCurrent_v2 = nullptr;
  decltype(&::cuCtxPopCurrent_v2) cuCtxPopCurrent_v2 = nullptr;
  decltype(&::cuStreamCreate) cuStreamCreate = nullptr;
  decltype(&::cuStreamDestroy_v2) cuStreamDestroy_v2 = nullptr;
  decltype(&::cuStreamSynchronize) cuStreamSynchronize = nullptr;
  decltype(&::cuMemcpyDtoHAsync_v2) cuMemcpyDtoHAsync_v2 = nullptr;
  decltype(&::cuMemcpyHtoDAsync_v2) cuMemcpyHtoDAsync_v2 = nullptr;
  decltype(&::cuMemHostRegister_v2) cuMemHostRegister_v2 = nullptr;
  decltype(&::cuMemHostUnregister) cuMemHostUnregister = nullptr;
  decltype(&::cuThreadExchangeStreamCaptureMode) cuThreadExchangeStreamCaptureMode = nullptr;
  decltype(&::cuDeviceGetAttribute) cuDeviceGetAttribute = nullptr;
  decltype(&::cuMemExportToShareableHandle) cuMemExportToShareableHandle = nullptr;
  decltype(&::cuMemsetD32Async) cuMemsetD32Async = nullptr;
  decltype(&::cuModuleLoadData) cuModuleLoadData = nullptr;
  decltype(&::cuModuleUnload) cuModuleUnload = nullptr;
  decltype(&::cuModuleGetFunction) cuModuleGetFunction = nullptr;
  decltype(&::cuLaunchKernel) cuLaunchKernel = nullptr;
  decltype(&::cuMemHostAlloc) cuMemHostAlloc = nullptr;
  decltype(&::cuMemFreeHost) cuMemFreeHost = nullptr;

  // Returns true if every required entry is set. Without virtual memory management (driver < 10.2 or a GPU
  // that lacks it) the swap backend cannot work.
  bool complete() const;
  // Returns true if contents can be fingerprinted and filled.
  bool can_look() const;
};

}  // namespace sharedgpu
