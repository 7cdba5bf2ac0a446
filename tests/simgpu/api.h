// SPDX-License-Identifier: Apache-2.0
// cuda.h for the files that define its functions: every version and per-thread variant under its own name.
// Base names ("cuMemAlloc") are macros here: write the version out ("cuMemAlloc_v2").
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tests/simgpu/driver.h"

namespace sharedgpu::simgpu {

inline Gpu& gpu_of(const CUmemLocation& location) {
  require(location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
  return driver().gpu(location.id);
}

inline Access access_of(CUmemAccess_flags flags) {
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? Access::read_write
         : flags == CU_MEM_ACCESS_FLAGS_PROT_READ    ? Access::read
                                                     : Access::none;
}

}  // namespace sharedgpu::simgpu
