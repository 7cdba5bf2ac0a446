// SPDX-License-Identifier: Apache-2.0
// Freeing what cuMemAlloc gave.
#pragma once

#include <cuda.h>

#include <optional>

namespace sharedgpu::hooks {

// Waits for the GPU, as cuMemFree does. nullopt: not ours.
std::optional<CUresult> free_ours(CUdeviceptr address);

}  // namespace sharedgpu::hooks
