// SPDX-License-Identifier: Apache-2.0
// How much a footprint has grown without a pause. What has grown so much is likely to grow by half of that
// again: a program that takes all of its memory as it starts waits for a few evictions then, not for hundreds
// (of 64 MiB, 3 ms each; 25 ms and more where host memory has to be pinned first). Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

class Surge {
 public:
  void add(Bytes grown, Nanoseconds now) {
    size_ = size(now) + grown;
    last_ = now;
  }
  Bytes to_come(Nanoseconds now) const { return {size(now).count / 2}; }

 private:
  static constexpr Nanoseconds kPause = std::chrono::seconds(1);

  Bytes size(Nanoseconds now) const { return now - last_ < kPause ? size_ : Bytes{}; }

  Bytes size_;
  Nanoseconds last_{};
};

}  // namespace sharedgpu
