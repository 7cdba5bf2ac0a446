// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/complaint_limits.h"

namespace sharedgpu {
namespace {

std::string with_others(const std::string& line, std::uint64_t others) {
  return others == 0 ? line : line + " (" + std::to_string(others) + " more like this left out)";
}

}  // namespace

std::optional<std::string> ComplaintLimits::add(uid_t user, Cause cause, const std::string& line,
                                                Nanoseconds now) {
  if (user == 0) return line;
  const Key key{user, cause};
  if (!allowed_.take(key, now)) {
    LeftOut& others = left_out_[key];
    others.last = line;
    ++others.count;
    return std::nullopt;
  }
  const auto others = left_out_.extract(key);
  return with_others(line, others ? others.mapped().count : 0);
}

std::vector<std::string> ComplaintLimits::take_left_out(Nanoseconds now) {
  std::vector<std::string> lines;
  std::erase_if(left_out_, [&](const auto& entry) {
    if (!allowed_.take(entry.first, now)) return false;
    lines.push_back(with_others(entry.second.last, entry.second.count - 1));
    return true;
  });
  return lines;
}

}  // namespace sharedgpu
