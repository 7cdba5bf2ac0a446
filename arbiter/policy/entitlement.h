// SPDX-License-Identifier: Apache-2.0
// The division of the GPU's time among the tenants that want it, and the choice of those that have it alone.
// Pure.
#pragma once

#include <algorithm>
#include <vector>

#include "arbiter/policy/views.h"

namespace sharedgpu {

struct EntitlementRules {
  // Requests are met first, what is left goes by units, and limits bound both the share and the time that a
  // tenant has while nobody else wants it (scheduler/throttle.h). Otherwise all goes by units.
  bool by_requests = false;
  // Deadlines bound tenants of a lower priority (scheduler/deadline_limits.h).
  bool deadlines = false;
};

// The part of the time that is due to each of those that compete, in their order. Where requests come to more
// than there is, each gets the same part of its own.
std::vector<double> shares(const EntitlementRules& rules, const std::vector<Claims>& competing);

// Such a tenant makes all in its domain run alone.
constexpr bool makes_exclusive(const EntitlementRules& rules, const Claims& claims) {
  return rules.deadlines && claims.deadline > Nanoseconds{};
}

// It has the GPU for itself while it runs, also where memory suffices for more.
constexpr bool is_exclusive(const EntitlementRules& rules, const Claims& claims) {
  return (rules.by_requests && claims.timed) || makes_exclusive(rules, claims);
}

// The work that anybody may have queued ahead of the GPU beside such a tenant, if some have to take turns: a
// quarter of a deadline. Zero: as much as usual, see interposer/gate/ahead.h.
constexpr Nanoseconds backlog_limit_beside(const EntitlementRules& rules, const Claims& claims) {
  constexpr int kPerDeadline = 4;
  constexpr std::chrono::milliseconds kLeast{2};
  constexpr std::chrono::milliseconds kMost{20};
  if (!makes_exclusive(rules, claims)) return {};
  return std::clamp<Nanoseconds>(claims.deadline / kPerDeadline, kLeast, kMost);
}

// True: handoffs take no more than a tenth of the tenant's deadline. Otherwise memory moves with every
// piece of its work, and going first costs more than that is worth.
constexpr bool is_quick(const TenantView& tenant, const TurnView& turn) {
  constexpr int kHandoffs = 10;
  return tenant.claims.deadline > kHandoffs * std::max(tenant.handoff, turn.turn.handoff);
}

// The debt that a tenant's account may have while the tenant has the GPU and others wait: half a step, so
// that accounts stay within about a step of each other. If deadlines count, one deadline if that is more: a
// piece of work that can be done in time is done in one turn. A longer deadline counts as a tenth of a
// second: turns are short beside it.
constexpr Nanoseconds allowance(const EntitlementRules& rules, const TenantView& tenant,
                                const TurnView& turn) {
  constexpr std::chrono::milliseconds kLongestPiece{100};
  const Nanoseconds half = turn.turn.length / 2;
  if (!rules.deadlines || !is_quick(tenant, turn)) return half;
  return std::max(half, std::min<Nanoseconds>(tenant.claims.deadline, kLongestPiece));
}

}  // namespace sharedgpu
