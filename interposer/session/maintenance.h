// SPDX-License-Identifier: Apache-2.0
// The turn thread's work for other parts of the process, beside obeying the arbiter.
#pragma once

#include "interposer/memory/memory.h"
#include "protocol/units.h"

namespace sharedgpu::session {

// Work that is due every second or so, whether the gate is open or closed. It may ask the arbiter for
// nothing.
class Maintenance {
 public:
  virtual ~Maintenance() = default;
  // `memory`: that of the session's GPU.
  virtual void run(Pinning& memory) = 0;
};

// Measures how long the GPU is at one submission of the process.
class SubmissionClock {
 public:
  virtual ~SubmissionClock() = default;
  // Called every few milliseconds while the gate is open; must not block. Zero: not known.
  virtual Nanoseconds longest() = 0;
};

}  // namespace sharedgpu::session
