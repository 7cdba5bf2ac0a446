// SPDX-License-Identifier: Apache-2.0
// The limits on the host memory of a tenant's swap. In bytes; nullopt: no limit is known.
#pragma once

#include <optional>

#include "protocol/units.h"

namespace sharedgpu {

struct HostLimits {
  std::optional<Bytes> units;  // the host memory that the tenant's units entitle it to
  std::optional<Bytes> job;    // limit of the job's cgroup, which also counts the program's own memory
  // The most host memory that the tenant's swap may use: `units`, or the largest limit that a session reports
  // for its step (MemoryUse::host_limit), whichever is smaller.
  std::optional<Bytes> budget;
};

}  // namespace sharedgpu
