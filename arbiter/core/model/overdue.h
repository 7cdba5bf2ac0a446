// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// A tenant has not left a GPU since its lease was revoked, and others wait for that GPU.
struct Overdue {
  GpuUuid gpu;
  Nanoseconds since{};
  bool stopped =
      false;  // its processes there are stopped; otherwise one of them has yet to say that it is done
};

}  // namespace sharedgpu
