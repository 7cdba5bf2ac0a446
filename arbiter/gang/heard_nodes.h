// SPDX-License-Identifier: Apache-2.0
// The nodes whose arbiters have written to this one lately, about any job.
//
// If such a node falls silent, that is an outage, and it is waited for. A node that was never heard may have
// no arbiter, or may be behind a firewall.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <string>

#include "protocol/units.h"

namespace sharedgpu {

class HeardNodes {
 public:
  static constexpr std::size_t kMost = 10'000;  // further nodes count as never heard

  // `recent`: for how long a node counts as heard after its last letter.
  explicit HeardNodes(Nanoseconds recent) : recent_(recent) {}

  void hear(const std::string& node, Nanoseconds now) {
    if (heard_.size() >= kMost && heard_.count(node) == 0) forget_old(now);
    if (heard_.size() < kMost || heard_.count(node) > 0) heard_[node] = now;
  }
  // Returns true if a letter of `node` came lately. `as_of`: the start of the silence that is judged.
  bool has(const std::string& node, Nanoseconds as_of) const {
    const auto it = heard_.find(node);
    return it != heard_.end() && as_of - it->second < recent_;
  }

 private:
  void forget_old(Nanoseconds now) {
    std::erase_if(heard_, [&](const auto& entry) { return now - entry.second >= recent_; });
  }

  const Nanoseconds recent_;
  std::map<std::string, Nanoseconds> heard_;  // when the last letter of each node came
};

}  // namespace sharedgpu
