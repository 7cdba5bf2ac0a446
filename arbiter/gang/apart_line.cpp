// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/apart_line.h"

#include <algorithm>
#include <tuple>

namespace sharedgpu {

void ApartLine::advance(bool waits, Nanoseconds now) {
  if (!waits) {
    ask_at_ = Nanoseconds::max();
  } else if (now >= ask_at_) {
    question_ = now;
    ask_at_ = now + pause_;
  }
}

std::optional<Nanoseconds> ApartLine::wake(bool waits) const {
  return waits ? std::optional(ask_at_) : std::nullopt;
}

void ApartLine::list(std::vector<StartedJob> jobs, Nanoseconds asked) {
  if (jobs.empty() || asked < listed_at_) return;
  listed_at_ = asked;
  jobs_ = std::move(jobs);
  std::sort(jobs_.begin(), jobs_.end(), [](const StartedJob& one, const StartedJob& other) {
    return std::tie(one.started, one.number) < std::tie(other.started, other.number);
  });
}

bool ApartLine::lists(std::uint32_t job) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const StartedJob& its) { return its.number == job; });
}

std::optional<Nanoseconds> ApartLine::may_begin(std::uint32_t job, Nanoseconds needed,
                                                const std::function<bool(std::uint32_t)>& passed) const {
  if (listed_at_ < needed) return std::nullopt;
  const auto its = std::find_if(jobs_.begin(), jobs_.end(),
                                [&](const StartedJob& listed) { return listed.number == job; });
  const bool may = its != jobs_.end() && std::all_of(jobs_.begin(), its, [&](const StartedJob& other) {
                     return passed(other.number);
                   });
  return may ? std::optional(its->started) : std::nullopt;
}

}  // namespace sharedgpu
