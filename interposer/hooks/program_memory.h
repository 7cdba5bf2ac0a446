// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <optional>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks {

// Where memory that the program made itself, and that is swapped, is mapped around this address.
std::optional<AddressRange> program_mapping(CUdeviceptr address);

}  // namespace sharedgpu::hooks
