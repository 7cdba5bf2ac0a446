// SPDX-License-Identifier: Apache-2.0
// Collects samples of how much memory is left, and estimates from them how much will be allocated within the
// next second. Pure.
//
// Not thread-safe.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

class Growth {
 public:
  // Adds a sample: `left` bytes are left now. Samples less than 20 ms apart are ignored.
  void look(Bytes left, Nanoseconds now) {
    constexpr Nanoseconds kLeast = std::chrono::milliseconds(20);
    constexpr Nanoseconds kMost = std::chrono::seconds(1);
    const Nanoseconds passed = now - looked_;
    if (passed < kLeast) return;
    const auto scale = static_cast<double>(kMost.count()) / static_cast<double>(passed.count());
    const bool recent = passed <= kMost;  // if the last sample is older, the speed is unknown
    const auto taken = static_cast<double>(recent ? minus(left_, left).count : 0) * scale;
    // Programs allocate memory in bursts, so a peak influences the estimate for a second or two.
    a_second_ = {std::max(static_cast<std::uint64_t>(taken), recent ? a_second_.count / 8 * 7 : 0)};
    left_ = left;
    looked_ = now;
  }
  // The bytes that will be allocated within the next second at the present rate.
  Bytes a_second() const { return a_second_; }

 private:
  Bytes left_;
  Nanoseconds looked_{};
  Bytes a_second_;
};

}  // namespace sharedgpu
