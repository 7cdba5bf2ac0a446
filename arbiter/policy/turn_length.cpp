// SPDX-License-Identifier: Apache-2.0
#include "arbiter/policy/turn_length.h"

#include <algorithm>

namespace sharedgpu {
namespace {

constexpr Nanoseconds kMost = std::chrono::hours(24);

}  // namespace

TurnLength turn_length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets,
                       Nanoseconds least) {
  if (rules.fixed > Nanoseconds{}) return {rules.fixed, TurnRule::fixed, handoff, waiting_sets};
  const auto factor = 1 / rules.max_overhead - 1;
  const double wanted_count = static_cast<double>(handoff.count()) * factor;
  const Nanoseconds wanted = wanted_count < static_cast<double>(kMost.count())
                                 ? std::max(least, Nanoseconds(static_cast<Nanoseconds::rep>(wanted_count)))
                                 : kMost;
  // A tenant that has just left waits for a handoff and a turn of each waiting set, and then for the handoff
  // back to itself.
  const Nanoseconds allowed = (rules.max_wait - handoff) / std::max(waiting_sets, 1u) - handoff;
  const Nanoseconds length = std::min(wanted, std::max({allowed, handoff, least}));
  return {length, length < wanted ? TurnRule::max_wait : TurnRule::swap_overhead, handoff, waiting_sets};
}

}  // namespace sharedgpu
