// SPDX-License-Identifier: Apache-2.0
// The host memory for a step's units, if SwapPerUnit= depends on their types. Pure.
#pragma once

#include <string_view>

#include "config/settings.h"
#include "protocol/units.h"

namespace sharedgpu {

// `types` has the form of SHAREDGPU_UNIT_TYPES, such as "a100:2,h100:1". Returns the value of the field
// `brought` of RegisterJob. Returns zero if a size is `auto` and sharedgpu.conf does not state the memory of
// such GPUs. The arbiter then computes the value, because it knows the memory of its own GPUs.
Bytes memory_of_units(std::string_view types, const Settings& settings);

}  // namespace sharedgpu
