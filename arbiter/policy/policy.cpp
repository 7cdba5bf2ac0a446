// SPDX-License-Identifier: Apache-2.0
// The default implementations of Policy's methods.
#include "arbiter/policy/policy.h"

namespace sharedgpu {

bool Policy::preempts(const TenantView& /*waiting*/, const TenantView& /*running*/,
                      const TurnView& /*turn*/) const {
  return false;
}

Nanoseconds Policy::unchanged_for(const TenantView& /*waiting*/, const TurnView& /*turn*/) const {
  return Nanoseconds::max();
}

bool Policy::extends(const TenantView& /*running*/, const TenantView& /*waiting*/,
                     const TurnView& /*turn*/) const {
  return false;
}

Rank Policy::retain(const TenantView& running, const TurnView& turn) const {
  if (running.idle) return {};
  if (turn.over) return {.level = 1, .weight = -running.elapsed};
  return {.level = 1 + (running.leads ? 2 : 0) + (running.grows ? 0 : 1), .weight = running.elapsed};
}

TurnLength Policy::length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const {
  return turn_length(rules, handoff, waiting_sets);
}

bool may_preempt(const Policy& policy, const TenantView& waiting, const TenantView& running,
                 const TurnView& turn) {
  return protected_for(policy.rules().preemption, running, turn.turn.handoff) == Nanoseconds{} &&
         policy.preempts(waiting, running, turn);
}

}  // namespace sharedgpu
