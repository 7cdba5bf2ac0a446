// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// Says for how long, and why, a tenant keeps others waiting for a GPU: it has not left the GPU since its
// lease was revoked, or it has not evicted memory since it was told to or was stopped.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  bool stopped =
      false;  // its processes there are stopped; if false, one of these has yet to report that it has drained
  bool evicts = false;  // it has drained, and others wait only for its memory
};

}  // namespace sharedgpu
