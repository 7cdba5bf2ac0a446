// SPDX-License-Identifier: Apache-2.0
// How fast something shrinks: what looks at it now and then say about the second to come. Pure.
//
// One thread at a time.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

class Growth {
 public:
  // So much is left now. Looks that follow each other too closely say nothing.
  void look(Bytes left, Nanoseconds now) {
    constexpr Nanoseconds kLeast = std::chrono::milliseconds(20);
    constexpr Nanoseconds kMost = std::chrono::seconds(1);
    const Nanoseconds passed = now - looked_;
    if (passed < kLeast) return;
    const auto scale = static_cast<double>(kMost.count()) / static_cast<double>(passed.count());
    const bool recent = passed <= kMost;  // what happened longer ago may have been slow or fast
    const auto taken = static_cast<double>(recent ? minus(left_, left).count : 0) * scale;
    // It comes in bursts: forgotten in a second or two.
    a_second_ = {std::max(static_cast<std::uint64_t>(taken), recent ? a_second_.count / 8 * 7 : 0)};
    left_ = left;
    looked_ = now;
  }
  // What will be taken in a second if this goes on.
  Bytes a_second() const { return a_second_; }

 private:
  Bytes left_;
  Nanoseconds looked_{};
  Bytes a_second_;
};

}  // namespace sharedgpu
