// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// Tells since when and why a tenant keeps other tenants waiting for a GPU. There are three reasons. The
// tenant has not left the GPU since its lease was revoked. Or it has not evicted memory that it was told to
// evict. Or its stopped processes hold memory on the GPU.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  // True: the tenant's processes that others wait for are stopped. False: these processes are not stopped,
  // and have yet to drain or to evict.
  bool stopped = false;
  bool evicts = false;  // the tenant has drained, and others wait only for its memory
};

}  // namespace sharedgpu
