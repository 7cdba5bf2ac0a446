// SPDX-License-Identifier: Apache-2.0
// shortest-first: as round-robin, but a tenant that is expected to need the GPU for a time shorter by T
// precedes a tenant that has waited longer, if it has waited longer by at most T. The expected time is the
// mean of the tenant's last bursts plus the handoffs to it and back, which depend on its footprint. A tenant
// without measurements counts as short.
//
// Nobody starves: the expected time counts as MaxWait at most. So a tenant is preceded only by tenants that
// begin to wait within MaxWait after it. After that it waits as with round-robin.
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
