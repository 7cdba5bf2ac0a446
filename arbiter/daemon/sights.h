// SPDX-License-Identifier: Apache-2.0
// What surveys have shown lately of a process beyond what it may have. It counts as far as two of them show
// it, with others between that show less: memory may be on its way in or out while one looks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Sights {
 public:
  // The survey of that number shows so much. The part of it that counts.
  Bytes add(std::uint64_t survey, Bytes beyond) {
    std::erase_if(all_, [&](const Sight& sight) { return sight.survey + kMemory < survey; });
    Bytes before;
    for (const Sight& sight : all_) before = std::max(before, sight.beyond);
    all_.push_back({.survey = survey, .beyond = beyond});
    return std::min(before, beyond);
  }
  // None of them counts any more.
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
