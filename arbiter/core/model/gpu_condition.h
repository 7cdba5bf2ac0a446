// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sharedgpu {

// A GPU as its driver tells of it.
enum class GpuCondition : std::uint8_t {
  healthy,
  failing,  // it has reported an error that only a reset mends: who is there goes on
  lost,     // it does not answer any more, or is not there: nobody can use it
};

}  // namespace sharedgpu
