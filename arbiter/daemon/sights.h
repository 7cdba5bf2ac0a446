// SPDX-License-Identifier: Apache-2.0
// What surveys have shown lately of a process beyond what it may have. It counts as far as two of them show
// it, and not in those between that show less: memory may be on its way in or out while a survey looks.
#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Sights {
 public:
  // Another survey shows so much. The part of it that counts.
  Bytes add(Nanoseconds now, Bytes beyond) {
    std::erase_if(all_, [&](const Sight& sight) { return sight.at + kMemory < now; });
    Bytes before;
    for (const Sight& sight : all_) before = std::max(before, sight.beyond);
    all_.push_back({.at = now, .beyond = beyond});
    return std::min(before, beyond);
  }
  bool are_old(Nanoseconds now) const { return all_.empty() || all_.back().at + kMemory < now; }

 private:
  static constexpr std::chrono::seconds kMemory{10};
  struct Sight {
    Nanoseconds at{};
    Bytes beyond;
  };
  std::vector<Sight> all_;
};

}  // namespace sharedgpu
