// SPDX-License-Identifier: Apache-2.0
// What a Device is made of: functions of the driver.
#pragma once

#include <cuda.h>

namespace sharedgpu {

// The real driver's entry points, never our own wrappers: what is launched here passes no gate. From
// cuThreadExchangeStreamCaptureMode on they may be null.
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

  // Whether every required entry is filled: without virtual memory management (driver < 10.2 or a GPU that
  // lacks it) the swap backend cannot serve.
  bool complete() const;
  // Whether contents can be looked at, and filled in.
  bool can_look() const;
};

}  // namespace sharedgpu
