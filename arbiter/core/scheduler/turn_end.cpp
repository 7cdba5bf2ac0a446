// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/turn_end.h"

#include <algorithm>

namespace sharedgpu {
namespace {

constexpr std::chrono::microseconds kTick{1};  // in less time, rounding may leave an account unchanged
// kStepsAtOnce bounds how far an account may fall before Policy::extends() compares the accounts (at_once()).
// kLeastFall is the lowest rate at which an account is assumed to fall.
constexpr int kStepsAtOnce = 2;
constexpr double kLeastFall = 0.05;
// A reported duration of a submission counts up to this limit, since a tenant may report false durations.
constexpr std::chrono::seconds kLongestSubmission{1};

// Returns an upper bound on the turn. The leader's account may end the turn earlier, whatever the other
// accounts are. At the bound, Policy::extends() compares the leader's account with those of the waiting
// tenants. The comparison is needed because a tenant that fits beside every other tenant may have the GPU all
// the time. Such a tenant may owe more than its account can record, while the accounts of all other tenants
// rise together. If the accounts of all tenants are full, turns of this length give the tenants their shares.
Nanoseconds at_once(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                    const TurnView& turn) {
  const auto sets = static_cast<double>(turn.turn.waiting_sets + 1);
  if (is_full(rules.account, lag_when_served(leader, elapsed), leader))
    return scaled(kStepsAtOnce * turn.turn.length, sets * leader.due);
  return scaled(2 * kStepsAtOnce * allowance(rules.entitlement, leader, turn),
                1 / std::max(1 - leader.due, kLeastFall));
}

}  // namespace

Nanoseconds until_behind(const PolicyRules& rules, const TenantView& tenant, const TurnView& turn) {
  const double falls = std::max(1 - tenant.due, 1e-3);
  return scaled(tenant.lag + allowance(rules.entitlement, tenant, turn), 1 / falls) + kTick;
}

// The duration of submissions varies. So the length includes a quarter of a submission as a reserve, in which
// no submission begins.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission) {
  const Nanoseconds each = std::min<Nanoseconds>(submission, kLongestSubmission);
  if (each == Nanoseconds{}) return length;
  const auto count = std::max<Nanoseconds::rep>((length + each / 2) / each, 1);
  return count * each + each / 4;
}

Nanoseconds turn_left(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                      const TurnView& turn) {
  if (!rules.lag_ends_turns || turn.turn.rule == TurnRule::fixed) return turn.turn.length - elapsed;
  const Nanoseconds longest = std::max(turn.rules.max_wait, turn.turn.length);
  const Nanoseconds most = std::min(longest, at_once(rules, leader, elapsed, turn));
  const Nanoseconds behind = std::min(until_behind(rules, leader, turn), most - elapsed);
  const Nanoseconds least = turn.turn.length / 4;
  return for_whole_submissions(std::max(elapsed + behind, least), leader.submission) - elapsed;
}

}  // namespace sharedgpu
