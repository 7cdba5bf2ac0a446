// SPDX-License-Identifier: Apache-2.0
// Frees memory that cuMemAlloc has returned.
#pragma once

#include <cuda.h>

#include <optional>

namespace sharedgpu::hooks {

// Waits for the GPU, as cuMemFree does. Returns nullopt if the memory is not ours.
std::optional<CUresult> free_ours(CUdeviceptr address);
// Frees memory like free_ours(), but does not wait. Call it only if no GPU work uses the memory.
std::optional<CUresult> free_finished(CUdeviceptr address);

}  // namespace sharedgpu::hooks
