// SPDX-License-Identifier: Apache-2.0
// The nodes whose arbiters have lately sent a message to this arbiter, about any job.
//
// If a node has sent a message lately and is then silent, the silence counts as an outage, and gangs wait
// long for the node. A node that has never sent a message may have no arbiter, or may be behind a firewall,
// so gangs soon give it up. An outage must not look like a firewall after a restart of the arbiter. So the
// arbiter saves the names of these nodes in a file (text(), restore()).
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "protocol/units.h"

namespace sharedgpu {

class HeardNodes {
 public:
  static constexpr std::size_t kMost = 10'000;  // maximum number of nodes; hear() ignores further nodes

  // `recent`: the time for which a node counts as heard after its last message.
  explicit HeardNodes(Nanoseconds recent) : recent_(recent) {}

  void hear(const std::string& node, Nanoseconds now);
  // Returns true if the last message of `node` came less than `recent` before `as_of`, the start of the
  // node's silence.
  bool has(const std::string& node, Nanoseconds as_of) const {
    const auto it = heard_.find(node);
    return it != heard_.end() && as_of - it->second < recent_;
  }

  // Returns true if a message has come since the last call from a node that did not count as heard before.
  bool take_news() { return std::exchange(news_, false); }
  // The nodes that count as heard. The first line is `boot`, the host's boot id; each further line has the
  // name of a node and the time of its last message in seconds since the boot.
  std::string text(std::string_view boot, Nanoseconds now) const;
  // Adds the nodes of a text that text() has returned. Ignores the whole text if it is from another boot of
  // the host: the jobs of that boot are gone, and its times cannot be compared. Ignores lines in an unknown
  // format. A time in the future counts as `now`.
  void restore(std::string_view text, std::string_view boot, Nanoseconds now);

 private:
  void forget_old(Nanoseconds now) {
    std::erase_if(heard_, [&](const auto& entry) { return now - entry.second >= recent_; });
  }

  const Nanoseconds recent_;
  std::map<std::string, Nanoseconds> heard_;  // when the last message of each node came
  bool news_ = false;
};

}  // namespace sharedgpu
