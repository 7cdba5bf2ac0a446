// SPDX-License-Identifier: Apache-2.0
// Creates the memory object of an attached device.
#pragma once

#include <cuda.h>

#include "interposer/memory/driver_device.h"
#include "interposer/memory/memory.h"
#include "interposer/tracking/contexts.h"

namespace sharedgpu::session {

struct MadeMemory {
  Memory* memory = nullptr;
  DriverDevice* device = nullptr;  // the device that `memory` uses; null for the native backend
};

// Creates the memory object for `device` and `backend`. Before it frees memory, the object waits for GPU work
// in `contexts`; with the native backend, the driver waits instead. The object lives as long as the process.
MadeMemory make_memory(Backend backend, CUdevice device, Books& books, tracking::Contexts& contexts);

}  // namespace sharedgpu::session
