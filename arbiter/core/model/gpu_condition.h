// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sharedgpu {

// The condition of a GPU as its driver reports it.
enum class GpuCondition : std::uint8_t {
  healthy,
  failing,  // the GPU has reported an error that only a reset clears; its tenants continue, and no new
            // tenants come
  lost,     // the GPU does not answer or is missing: no tenant can use it
};

}  // namespace sharedgpu
