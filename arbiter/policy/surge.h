// SPDX-License-Identifier: Apache-2.0
// How much a footprint has grown without a pause. What has grown so much is likely to grow by half of that
// again: a program that takes all of its memory as it starts waits for a few evictions then, not for hundreds
// (of 64 MiB, 3 ms each; 25 ms and more where host memory has to be pinned first). What it only frees and
// takes again is no growth. Nor does it pause while it waits for a turn: what it was about to take, it takes
// then. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

class Surge {
 public:
  // What has not grown for so long has paused.
  explicit Surge(Nanoseconds pause = {}) : pause_(pause) {}

  void grew(Bytes before, Bytes after, Nanoseconds now) {
    if (!lasts(now)) begin_ = most_ = before;
    if (after <= most_) return;
    most_ = after;
    last_ = now;
  }
  // Who gives back what it waits for does not go on.
  void fell() { waits_ = false; }
  // From now on it cannot grow, until goes_on(); then by `most` at most.
  void waits(Nanoseconds now, Bytes most) {
    waits_ = lasts(now);
    put_off_ = std::min(half(), most);
  }
  void goes_on(Nanoseconds now) {
    if (std::exchange(waits_, false)) last_ = now;
  }
  Bytes to_come(Nanoseconds now) const { return lasts(now) ? half() : Bytes{}; }
  // What waits for goes_on().
  Bytes put_off() const { return waits_ ? put_off_ : Bytes{}; }

 private:
  Bytes half() const { return Bytes{minus(most_, begin_).count / 2}; }
  bool lasts(Nanoseconds now) const { return waits_ || now - last_ < pause_; }

  Nanoseconds pause_;
  Bytes begin_;
  Bytes most_;
  Nanoseconds last_ = Nanoseconds::min() / 2;
  Bytes put_off_;
  bool waits_ = false;
};

}  // namespace sharedgpu
