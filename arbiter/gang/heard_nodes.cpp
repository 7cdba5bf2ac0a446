// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/heard_nodes.h"

#include <algorithm>
#include <charconv>

#include "arbiter/gang/message.h"

namespace sharedgpu {

void HeardNodes::hear(const std::string& node, Nanoseconds now) {
  if (heard_.size() >= kMost && heard_.count(node) == 0) forget_old(now);
  if (heard_.size() >= kMost && heard_.count(node) == 0) return;
  news_ = news_ || !has(node, now);
  heard_.insert_or_assign(node, now);
}

std::string HeardNodes::text(std::string_view boot, Nanoseconds now) const {
  std::string lines = std::string(boot) + '\n';
  for (const auto& [node, at] : heard_) {
    if (now - at >= recent_) continue;
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at).count();
    lines += node + ' ' + std::to_string(seconds) + '\n';
  }
  return lines;
}

void HeardNodes::restore(std::string_view text, std::string_view boot, Nanoseconds now) {
  const auto next_line = [&text] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    return line;
  };
  if (boot.empty() || next_line() != boot) return;
  while (!text.empty() && heard_.size() < kMost) {
    const std::string_view line = next_line();
    const std::size_t blank = line.find(' ');
    if (blank == 0 || blank == line.npos || blank > kLongestNodeName) continue;
    const char* end = line.data() + line.size();
    std::uint32_t seconds = 0;
    const auto read = std::from_chars(line.data() + blank + 1, end, seconds);
    if (read.ec != std::errc() || read.ptr != end) continue;
    const Nanoseconds at = std::min<Nanoseconds>(std::chrono::seconds(seconds), now);
    if (now - at < recent_) heard_.try_emplace(std::string(line.substr(0, blank)), at);
  }
}

}  // namespace sharedgpu
