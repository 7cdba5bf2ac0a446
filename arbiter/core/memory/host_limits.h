// SPDX-License-Identifier: Apache-2.0
// The limits on the host memory of a tenant's swap. Bytes; none: unlimited.
#pragma once

#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

struct HostLimits {
  std::optional<Bytes> units;  // the host memory that the tenant's units bring
  std::optional<Bytes> job;    // the limit of its cgroup, which counts the program's own memory, too
  std::optional<Bytes>
      budget;  // the most that its swap may use: the least of both, with a margin left in `job`
};

}  // namespace sharedgpu
