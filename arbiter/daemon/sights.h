// SPDX-License-Identifier: Apache-2.0
// The memory that a process had in recent surveys beyond the memory that its sessions may have. An amount
// counts only if the last survey and another recent survey show at least this amount, because one survey may
// show memory that is just being moved.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Sights {
 public:
  // Adds the excess that the survey with the number `survey` found. Returns the part of the excess that
  // counts.
  Bytes add(std::uint64_t survey, Bytes beyond) {
    std::erase_if(all_, [&](const Sight& sight) { return sight.survey + kMemory < survey; });
    Bytes before;
    for (const Sight& sight : all_) before = std::max(before, sight.beyond);
    all_.push_back({.survey = survey, .beyond = beyond});
    return std::min(before, beyond);
  }
  // Returns true if all recorded surveys are too old to count.
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
