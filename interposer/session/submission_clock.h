// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "protocol/units.h"

namespace sharedgpu::session {

// Estimates how long the GPU takes for one submission of the process.
class SubmissionClock {
 public:
  virtual ~SubmissionClock() = default;
  // Returns the estimate for the stream whose submissions take longest; zero if unknown. Called while the
  // gate is open: every millisecond while other tenants wait, otherwise every 50 ms. Must not block.
  virtual Nanoseconds longest() = 0;
};

}  // namespace sharedgpu::session
