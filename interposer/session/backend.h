// SPDX-License-Identifier: Apache-2.0
// Makes the memory of the attached device.
#pragma once

#include <cuda.h>

#include "interposer/memory/driver_device.h"
#include "interposer/memory/memory.h"
#include "interposer/session/contexts.h"

namespace sharedgpu::session {

struct MadeMemory {
  Memory* memory = nullptr;        // null: plain CUDA's
  DriverDevice* device = nullptr;  // what it copies with
};

// The memory of `device` as `backend` gives it, which waits for work in `contexts`. Lives as long as the
// process.
MadeMemory make_memory(Backend backend, CUdevice device, Books& books, Contexts& contexts);

}  // namespace sharedgpu::session
