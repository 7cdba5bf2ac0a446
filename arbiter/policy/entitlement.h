// SPDX-License-Identifier: Apache-2.0
// The division of the GPU's time among the tenants that want it, and the choice of tenants that run alone.
// Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "arbiter/policy/views.h"

namespace sharedgpu {

struct EntitlementRules {
  // If true, requests are met first, and the rest is divided in proportion to units. Limits bound a tenant's
  // share, and also the time that the tenant gets while nobody else wants the GPU (scheduler/throttle.h). If
  // false, all time is divided in proportion to units.
  bool by_requests = false;
  // If true, a tenant's deadlines limit the time of tenants with a lower priority
  // (scheduler/deadline_limits.h).
  bool deadlines = false;
};

// Returns the share of each competing tenant, in the order of `competing`. If the requests sum up to more
// than 1, each is reduced by the same factor.
std::vector<double> shares(const EntitlementRules& rules, const std::vector<Claims>& competing);

// Returns true if all tenants in a domain run one at a time because one of them has these `claims`.
constexpr bool makes_exclusive(const EntitlementRules& rules, const Claims& claims) {
  return rules.deadlines && claims.deadline > Nanoseconds{};
}

// Returns true if a tenant with these `claims` runs alone, even if memory suffices for more tenants.
constexpr bool is_exclusive(const EntitlementRules& rules, const Claims& claims) {
  return (rules.by_requests && claims.timed) || makes_exclusive(rules, claims);
}

// Returns the backlog limit that a tenant with these `claims` sets for all tenants in its domain while
// tenants have to take turns. The limit is a quarter of the tenant's deadline, but at least 2 ms and at most
// 20 ms. Returns zero if the tenant sets no limit; the default limit (interposer/backlog/ahead.h) then
// applies.
constexpr Nanoseconds backlog_limit_beside(const EntitlementRules& rules, const Claims& claims) {
  constexpr int kPerDeadline = 4;
  constexpr std::chrono::milliseconds kLeast{2};
  constexpr std::chrono::milliseconds kMost{20};
  if (!makes_exclusive(rules, claims)) return {};
  return std::clamp<Nanoseconds>(claims.deadline / kPerDeadline, kLeast, kMost);
}

// Returns true if handoffs take less than a tenth of the tenant's deadline. If handoffs take longer, the
// handoffs for every piece of work cost more time than the tenant gains by going first.
constexpr bool is_quick(const TenantView& tenant, const TurnView& turn) {
  constexpr int kHandoffs = 10;
  return tenant.claims.deadline > kHandoffs * std::max(tenant.handoff, turn.turn.handoff);
}

// The debt that a tenant's account may have while the tenant has the GPU and others wait. This is half a
// slice (elastic.h), so that accounts stay within about a slice of each other. For a tenant with deadlines
// for which is_quick() is true, the allowance is at least one deadline, so that a piece of work that can meet
// its deadline is done in one turn. Deadlines longer than 100 ms count as 100 ms.
constexpr Nanoseconds allowance(const EntitlementRules& rules, const TenantView& tenant,
                                const TurnView& turn) {
  constexpr std::chrono::milliseconds kLongestPiece{100};
  const Nanoseconds half = turn.turn.length / 2;
  if (!rules.deadlines || !is_quick(tenant, turn)) return half;
  return std::max(half, std::min<Nanoseconds>(tenant.claims.deadline, kLongestPiece));
}

}  // namespace sharedgpu
