// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// Says for how long, and why, a tenant keeps others waiting for a GPU: it has not left the GPU since its
// lease was revoked, or the GPU still has memory that the tenant was told to evict or that its stopped
// processes hold.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  // True: its processes there are stopped. False: one of its processes there runs, and has yet to drain or to
  // evict.
  bool stopped = false;
  bool evicts = false;  // it has drained, and others wait only for its memory
};

}  // namespace sharedgpu
