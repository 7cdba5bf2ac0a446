// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/units.h"

namespace sharedgpu::session {

// Measures the GPU time that one submission of the process takes.
class SubmissionClock {
 public:
  virtual ~SubmissionClock() = default;
  // Called every few milliseconds while the gate is open; must not block. Returns zero if unknown.
  virtual Nanoseconds longest() = 0;
};

}  // namespace sharedgpu::session
