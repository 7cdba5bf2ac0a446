// SPDX-License-Identifier: Apache-2.0
// The excess memory of a process in recent surveys, beyond what it may have. An amount counts only if two
// surveys show it, even if others between them show less: memory may be on its way in or out during a survey.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Sights {
 public:
  // Adds the excess found by that survey. Returns the part of the excess that counts.
  Bytes add(std::uint64_t survey, Bytes beyond) {
    std::erase_if(all_, [&](const Sight& sight) { return sight.survey + kMemory < survey; });
    Bytes before;
    for (const Sight& sight : all_) before = std::max(before, sight.beyond);
    all_.push_back({.survey = survey, .beyond = beyond});
    return std::min(before, beyond);
  }
  // True if all surveys here are too old to count.
  bool are_old(std::uint64_t survey) const { return all_.empty() || all_.back().survey + kMemory < survey; }

 private:
  static constexpr std::uint64_t kMemory = 10;
  struct Sight {
    std::uint64_t survey = 0;
    Bytes beyond;
  };
  std::vector<Sight> all_;
};

}  // namespace sharedgpu
