// SPDX-License-Identifier: Apache-2.0
// The launches whose work may not have ended, and the handles that they use. If handles move while work runs,
// a handle that a launch still uses must not leave the window: the launch would be slow.
//
// Pure. Memory in proportion to the launches that are under way. Not thread-safe. No call fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class LaunchesUnderWay {
 public:
  using Number = std::uint64_t;
  struct Use {
    std::uint64_t handle;  // its address
    Bytes size;
  };

  // A launch that uses these handles, each named once, has begun. Returns its number.
  Number begin(std::vector<Use> uses) {
    for (const Use& use : uses)
      if (count_[use.handle]++ == 0) size_ += use.size;
    launches_.emplace(++last_, std::move(uses));
    return last_;
  }
  // The launch has ended. Does nothing if it has ended before.
  void end(Number number) {
    const auto launch = launches_.find(number);
    if (launch == launches_.end()) return;
    for (const Use& use : launch->second) {
      const auto counted = count_.find(use.handle);
      if (--counted->second != 0) continue;
      count_.erase(counted);
      size_ -= use.size;
    }
    launches_.erase(launch);
  }
  bool uses(std::uint64_t handle) const { return count_.contains(handle); }
  std::size_t count() const { return launches_.size(); }
  Bytes size() const { return size_; }  // of all handles in use

 private:
  std::map<Number, std::vector<Use>> launches_;
  std::map<std::uint64_t, std::size_t> count_;  // launches that use the handle
  Bytes size_;
  Number last_ = 0;
};

}  // namespace sharedgpu
