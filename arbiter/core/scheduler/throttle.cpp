// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/throttle.h"

#include "arbiter/core/scheduler/turn_end.h"

namespace sharedgpu {
namespace {

bool is_limited(const PolicyRules& rules, const TenantView& tenant) {
  return rules.entitlement.by_requests && limit_binds(tenant.due, tenant.claims.limit);
}

}  // namespace

Nanoseconds throttled_for(const PolicyRules& rules, const TenantView& waiting) {
  if (!is_limited(rules, waiting) || waiting.lag >= Nanoseconds{}) return {};
  return time_to_earn(-waiting.lag, waiting.due);
}

Nanoseconds budget_left(const PolicyRules& rules, const TenantView& running, const TurnView& turn) {
  if (!is_limited(rules, running)) return Nanoseconds::max();
  const Nanoseconds budget = running.elapsed + until_behind(rules, running, turn);
  return for_whole_submissions(budget, running.submission) - running.elapsed;
}

}  // namespace sharedgpu
