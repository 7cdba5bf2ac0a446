// SPDX-License-Identifier: Apache-2.0
// Bounds how often something may happen: `most` times at once, and `a_second` times a second for long.
// Pure. One thread at a time.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

class TokenBucket {
 public:
  TokenBucket(double most, double a_second) : most_(most), tokens_(most), a_second_(a_second) {}

  // True if it may happen at `now`, and counts it. False: nothing is counted.
  bool take(Nanoseconds now) {
    tokens_ = std::min(most_, tokens_ + a_second_ * std::chrono::duration<double>(now - looked_).count());
    looked_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

 private:
  double most_;
  double tokens_;
  double a_second_;
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
