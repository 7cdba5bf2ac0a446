// SPDX-License-Identifier: Apache-2.0
// Work that the turn thread does for other parts of the process, besides obeying the arbiter.
#pragma once

#include "interposer/memory/memory.h"

namespace sharedgpu {

// Work that is due about once a second, whether the gate is open or closed. It must not send requests to the
// arbiter.
class Maintenance {
 public:
  virtual ~Maintenance() = default;
  // `memory`: the memory of the session's GPU.
  virtual void run(Pinning& memory) = 0;
};

}  // namespace sharedgpu
