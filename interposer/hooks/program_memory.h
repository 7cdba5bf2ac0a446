// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <optional>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// The mapping around this address of swappable memory that the program has created itself; nullopt if none.
std::optional<AddressRange> program_mapping(CUdeviceptr address);

}  // namespace sharedgpu::hooks
