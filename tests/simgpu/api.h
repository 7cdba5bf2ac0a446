// SPDX-License-Identifier: Apache-2.0
// cuda.h for the files that define its functions: every version and per-thread variant under its own name.
// Base names ("cuMemAlloc") are macros here: write the version out ("cuMemAlloc_v2").
#pragma once

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "tests/simgpu/driver.h"
