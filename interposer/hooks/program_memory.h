// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <optional>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// The mapping that contains this address, if it maps swappable memory that the program has created itself;
// otherwise nullopt.
std::optional<AddressRange> program_mapping(CUdeviceptr address);

}  // namespace sharedgpu::hooks
