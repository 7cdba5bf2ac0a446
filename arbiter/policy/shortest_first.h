// SPDX-License-Identifier: Apache-2.0
// shortest-first: like round-robin, but a tenant's expected time on the GPU is subtracted from its wait. So
// if a tenant expects 3 s less on the GPU than another tenant, the first tenant goes first unless the other
// tenant has waited at least 3 s longer. The expected time is the mean GPU time of the tenant's last bursts
// (or the time of the current burst if that is longer), plus the durations of the handoffs to the tenant and
// back. These durations depend on the tenant's footprint. A tenant without measurements counts as short.
//
// Nobody starves: at most MaxWait is subtracted. So a tenant that has waited for MaxWait precedes all tenants
// that begin to wait after that time, and from then on waits as under round-robin.
#pragma once

#include <algorithm>

#include "arbiter/policy/round_robin.h"

namespace sharedgpu {

class ShortestFirst final : public RoundRobin {
 public:
  using RoundRobin::RoundRobin;

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    Rank rank = RoundRobin::rank(waiting, turn);
    rank.weight -= std::min(waiting.burst + 2 * waiting.handoff, turn.rules.max_wait);
    return rank;
  }
};

}  // namespace sharedgpu
