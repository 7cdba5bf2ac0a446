// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// A tenant has not left a GPU since its lease was revoked, or its memory there since it was told to evict or
// was stopped, and others wait for that GPU.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  bool stopped =
      false;  // its processes there are stopped; otherwise one of them has yet to say that it is done
  bool evicts = false;  // it has drained: only its memory is waited for
};

}  // namespace sharedgpu
