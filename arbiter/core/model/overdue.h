// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// Says for how long, and why, a tenant keeps others waiting for a GPU. It has not left the GPU since its
// lease was revoked, or its memory has not left since the tenant had to evict it or was stopped.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  bool stopped =
      false;  // its processes there are stopped; if false, one of them has yet to report that it has drained
  bool evicts = false;  // it has drained: others wait only for its memory
};

}  // namespace sharedgpu
