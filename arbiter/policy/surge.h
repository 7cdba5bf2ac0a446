// SPDX-License-Identifier: Apache-2.0
// How much a footprint has grown without a pause. What has grown so much is likely to grow by half of that
// again: a program that takes all of its memory as it starts waits for a few evictions then, not for hundreds
// (of 64 MiB, 3 ms each; 25 ms and more where host memory has to be pinned first). What it only frees and
// takes again is no growth. Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

class Surge {
 public:
  void grew(Bytes before, Bytes after, Nanoseconds now) {
    if (!goes_on(now)) begin_ = most_ = before;
    if (after <= most_) return;
    most_ = after;
    last_ = now;
  }
  Bytes to_come(Nanoseconds now) const {
    return goes_on(now) ? Bytes{minus(most_, begin_).count / 2} : Bytes{};
  }

 private:
  static constexpr Nanoseconds kPause = std::chrono::seconds(1);
  bool goes_on(Nanoseconds now) const { return now - last_ < kPause; }

  Bytes begin_;
  Bytes most_;
  Nanoseconds last_ = Nanoseconds::min() / 2;
};

}  // namespace sharedgpu
