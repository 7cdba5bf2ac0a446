// SPDX-License-Identifier: Apache-2.0
// The data about tenants and turns that a policy receives, and the ranks that it returns. Plain values.
#pragma once

#include <compare>

#include "arbiter/policy/turn_length.h"
#include "protocol/units.h"

namespace sharedgpu {

// The GPU time to which a tenant's job is entitled, and its priority.
struct Claims {
  std::uint32_t units = 1;
  std::int32_t priority = 0;  // a tenant with a higher priority goes first
  // Fractions of the GPU's time, see entitlement.h.
  double request = 0;
  double limit = 1;
  bool timed = false;      // request and limit apply even while memory suffices for all tenants
  Nanoseconds deadline{};  // time limit for each piece of the tenant's work; zero: no limit; the tenant's
                           // program reports met and missed deadlines
  bool operator==(const Claims&) const = default;
};

// The numbers of deadlines that a session of a tenant has met and missed since the session's last report.
struct DeadlinesSeen {
  std::uint64_t met = 0;
  std::uint64_t missed = 0;
};

struct TenantView {
  TenantId tenant;
  Claims claims;
  Nanoseconds lag{};  // GPU time that the tenant was entitled to and has not had, see AccountRules; negative:
                      // the tenant has had more
  Nanoseconds waited{};    // length of the current wait or, while the tenant runs, of the wait before its
                           // turn
  bool preempted = false;  // the tenant's last turn ended by preemption
  // The tenant's mean GPU time from a request to a pause, or the time of the current burst if that is longer.
  // Measured while others wait; zero: not measured yet.
  Nanoseconds burst{};
  Nanoseconds handoff{};  // duration of a handoff to the tenant, measured or estimated from its footprint
  double due = 0;         // the tenant's share, see ActivityInterval::due

  // For a tenant that runs:
  Nanoseconds elapsed{};  // time since the tenant's gates were opened
  // GPU time of one submission of the tenant, if the tenant ends its turn early instead of making a
  // submission that would outlast the turn. Zero: the tenant does not end its turn early, or the time is
  // unknown.
  Nanoseconds submission{};
  // Duration of the tenant's last drain, if its processes had to submit more work in order to drain, because
  // they waited for each other. Otherwise zero.
  Nanoseconds last_drain{};
  bool leads = false;  // this turn began for the tenant
  bool grows = false;  // the tenant requests more memory than the GPU has left beside the running set
  bool idle = false;   // the tenant has had no work for so long that its turn is over, see
                       // scheduler/idleness.h
};

struct TurnView {
  const TurnRules& rules;
  TurnLength turn;
  bool over = false;
};

// The waiting tenant with the higher rank goes first. Of waiting tenants with equal ranks, the tenant that
// has waited longer goes first, and of tenants that have waited equally long, the tenant with the lower id.
struct Rank {
  int level = 0;
  Nanoseconds weight{};
  auto operator<=>(const Rank&) const = default;
};

}  // namespace sharedgpu
