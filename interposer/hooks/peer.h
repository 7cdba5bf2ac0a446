// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

namespace sharedgpu::hooks {

// Work of `device` may access our memory of `owner` from now on, whatever becomes of the peer access between
// contexts.
void open_to_peer(CUdevice device, CUdevice owner);

}  // namespace sharedgpu::hooks
