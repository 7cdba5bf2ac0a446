// SPDX-License-Identifier: Apache-2.0
// A forecast of the further growth of a footprint.
//
// A footprint that has grown without a pause is expected to grow further, by half of that growth. So a
// program that allocates all of its memory at its start waits for a few large evictions. Without the forecast
// the program would wait for hundreds of evictions of 64 MiB, which take 3 ms each, or at least 25 ms if host
// memory must be pinned first. Allocating freed memory again does not count as growth. Waiting for a turn
// does not count as a pause, since the program continues to allocate in its next turn. Pure.
#pragma once

#include <algorithm>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

class GrowthForecast {
 public:
  // `pause`: the time without growth after which no further growth is expected.
  explicit GrowthForecast(Nanoseconds pause = {}) : pause_(pause) {}

  void grew(Bytes before, Bytes after, Nanoseconds now) {
    if (!lasts(now)) begin_ = most_ = before;
    if (after <= most_) return;
    most_ = after;
    last_ = now;
  }
  // Call when the session has freed memory. If the session waits for a turn, no growth is expected in that
  // turn any more.
  void fell() { waits_ = false; }
  // Call when the session cannot grow until resume() is called. The growth expected after resume() is at most
  // `most`.
  void suspend(Nanoseconds now, Bytes most) {
    waits_ = lasts(now);
    deferred_ = std::min(half(), most);
  }
  void resume(Nanoseconds now) {
    if (std::exchange(waits_, false)) last_ = now;
  }
  bool goes_on(Nanoseconds now) const { return lasts(now); }
  // The growth expected soon.
  Bytes expected(Nanoseconds now) const { return lasts(now) ? half() : Bytes{}; }
  // The growth expected after resume().
  Bytes deferred() const { return waits_ ? deferred_ : Bytes{}; }

 private:
  Bytes half() const { return Bytes{minus(most_, begin_).count / 2}; }
  bool lasts(Nanoseconds now) const { return waits_ || now - last_ < pause_; }

  Nanoseconds pause_;
  Bytes begin_;
  Bytes most_;
  Nanoseconds last_ = Nanoseconds::min() / 2;
  Bytes deferred_;
  bool waits_ = false;
};

}  // namespace sharedgpu
