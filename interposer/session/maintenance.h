// SPDX-License-Identifier: Apache-2.0
// Work that the turn thread does for other parts of the process, besides obeying the arbiter.
#pragma once

#include "interposer/memory/memory.h"
#include "protocol/units.h"

namespace sharedgpu::session {

// Work that is due about once a second, whether the gate is open or closed. It must not send requests to the
// arbiter.
class Maintenance {
 public:
  virtual ~Maintenance() = default;
  // `memory`: the memory of the session's GPU.
  virtual void run(Pinning& memory) = 0;
};

// Measures the GPU time of one submission of the process.
class SubmissionClock {
 public:
  virtual ~SubmissionClock() = default;
  // Called every few milliseconds while the gate is open; must not block. Returns zero if unknown.
  virtual Nanoseconds longest() = 0;
};

}  // namespace sharedgpu::session
