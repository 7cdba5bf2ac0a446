// SPDX-License-Identifier: Apache-2.0
// Freeing what cuMemAlloc gave.
#pragma once

#include <cuda.h>

#include <optional>

namespace sharedgpu::hooks {

// Waits for the GPU, as cuMemFree does. nullopt: not ours.
std::optional<CUresult> free_ours(CUdeviceptr address);
// The same where no work uses it any more: waits for nothing.
std::optional<CUresult> free_finished(CUdeviceptr address);

}  // namespace sharedgpu::hooks
