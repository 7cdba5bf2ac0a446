// SPDX-License-Identifier: Apache-2.0
// fcfs: first come, first served. A tenant that has the GPU keeps it until the tenant has no work there. So
// handoffs are rare, and waits are as long as the work of others.
//
// Nobody starves: a tenant waits until each tenant that began to wait before it has had one turn. A turn ends
// with the current work, or after Quantum (after a day if none is set). During a turn, other tenants that fit
// on the GPU may also enter. So while a tenant that needs the whole GPU waits for the end of the turn, many
// small tenants may come and go.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Fcfs final : public Policy {
 public:
  using Policy::Policy;

  Rank rank(const TenantView& waiting, const TurnView& /*turn*/) const override {
    return {.level = 0, .weight = waiting.waited};
  }

  TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const override {
    if (rules.fixed > Nanoseconds{}) return turn_length(rules, handoff, waiting_sets);
    return {.length = std::chrono::hours(24), .rule = TurnRule::work, .handoff = handoff};
  }
};

}  // namespace sharedgpu
