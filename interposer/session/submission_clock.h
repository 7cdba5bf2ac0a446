// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/units.h"

namespace sharedgpu::session {

// Measures the GPU time that one submission of the process takes.
class SubmissionClock {
 public:
  virtual ~SubmissionClock() = default;
  // Called while the gate is open: every millisecond while other tenants wait, otherwise every 50 ms. Must
  // not block. Returns zero if unknown.
  virtual Nanoseconds longest() = 0;
};

}  // namespace sharedgpu::session
