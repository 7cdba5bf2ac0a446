// SPDX-License-Identifier: Apache-2.0
// Work that the turn thread does for other parts of the interposer while it has no order of the arbiter to
// carry out.
#pragma once

#include "interposer/memory/memory.h"

namespace sharedgpu {

// Work that is due about once a second, whether the gate is open or closed. The work must not send requests
// to the arbiter, since the turn thread must not wait for the answer.
class Maintenance {
 public:
  virtual ~Maintenance() = default;
  // `memory`: the memory of the session's GPU.
  virtual void run(Pinning& memory) = 0;
};

}  // namespace sharedgpu
