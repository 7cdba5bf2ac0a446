// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/throttle.h"

#include "arbiter/core/scheduler/turn_end.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::microseconds kTick{1};  // what rounding takes is made up for by then

bool is_limited(const PolicyRules& rules, const TenantView& tenant) {
  return rules.entitlement.by_requests && limit_binds(tenant.due, tenant.claims.limit);
}

}  // namespace

Nanoseconds throttled_for(const PolicyRules& rules, const TenantView& waiting) {
  if (!is_limited(rules, waiting) || waiting.lag >= Nanoseconds{}) return {};
  return scaled(-waiting.lag, 1 / waiting.due) + kTick;
}

Nanoseconds budget_left(const PolicyRules& rules, const TenantView& running, const TurnView& turn) {
  if (!is_limited(rules, running)) return Nanoseconds::max();
  const Nanoseconds budget = running.elapsed + until_behind(rules, running, turn);
  return for_whole_submissions(budget, running.submission) - running.elapsed;
}

}  // namespace sharedgpu
