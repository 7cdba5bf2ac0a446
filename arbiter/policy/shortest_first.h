// SPDX-License-Identifier: Apache-2.0
// shortest-first: as round-robin, but a tenant that is expected to need the GPU for less goes before one that
// has waited longer by no more than the difference. The expectation is the mean of its last bursts and the
// handoffs there and back, which follow from its footprint. A tenant that has not been seen yet is taken for
// short until it proves not to be.
//
// Nobody starves: the expectation counts for at most MaxWait, so a tenant is passed only by those that begin
// to wait within MaxWait after it; then it waits as with round-robin.
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
