// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// Says for how long, and why, a tenant keeps others waiting for a GPU. The tenant has not left the GPU since
// its lease was revoked; or the GPU still has memory that the tenant was told to evict, or that its stopped
// processes hold.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  // True: the tenant's processes on the GPU are stopped. False: one of these processes runs, and has yet to
  // drain or to evict.
  bool stopped = false;
  bool evicts = false;  // the tenant has drained, and others wait only for its memory
};

}  // namespace sharedgpu
