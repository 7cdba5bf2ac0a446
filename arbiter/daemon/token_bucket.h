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
    tokens_ = at(now);
    looked_ = now;
    if (tokens_ < 1) return false;
    tokens_ -= 1;
    return true;
  }

  // True if it has not happened for so long that nothing is left of it.
  bool is_full(Nanoseconds now) const { return at(now) >= most_; }

 private:
  double at(Nanoseconds now) const {
    return std::min(most_, tokens_ + a_second_ * std::chrono::duration<double>(now - looked_).count());
  }

  double most_;
  double tokens_;
  double a_second_;
  Nanoseconds looked_{};
};

}  // namespace sharedgpu
