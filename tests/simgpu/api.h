// SPDX-License-Identifier: Apache-2.0
// Includes cuda.h for the files that define the driver's functions: every version and per-thread variant has
// its own name. Base names ("cuMemAlloc") are macros here: write the version out ("cuMemAlloc_v2").
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tests/simgpu/driver.h"

namespace sharedgpu::simgpu {

inline Gpu& gpu_of(const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  return driver().gpu(location.id);
}

// CU_MEM_LOCATION_TYPE_HOST and CU_MEM_LOCATION_TYPE_HOST_NUMA, which cuda.h has since CUDA 12.2. The
// simulated host has one NUMA node, number 0.
inline constexpr unsigned kLocationHost = 2;
inline constexpr unsigned kLocationHostNuma = 3;
inline bool on_host(const CUmemLocation& location) {
  const auto type = static_cast<unsigned>(location.type);
  return type == kLocationHost || (type == kLocationHostNuma && location.id == 0);
}

inline Access access_of(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::read_write
         : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::read
                                                     : Access::none;
}

}  // namespace sharedgpu::simgpu
