// SPDX-License-Identifier: Apache-2.0
// shortest-first: as round-robin, but a tenant that is expected to need the GPU for a shorter time precedes
// one that has waited longer by at most the difference. The expected time is the mean of its last bursts plus
// the handoffs there and back, which depend on its footprint. A tenant without measurements counts as short
// until it proves otherwise.
//
// Nobody starves: the expectation counts for at most MaxWait, so a tenant is passed only by tenants that
// begin to wait within MaxWait after it. Then it waits as with round-robin.
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
