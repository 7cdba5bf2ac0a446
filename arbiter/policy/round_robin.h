// SPDX-License-Identifier: Apache-2.0
// round-robin: waiting tenants are served in the order in which they began to wait. Before them goes a tenant
// that was preempted, and first of all one that can pay for a preemption (preemption.h).
//
// Nobody starves: each tenant that waits has a turn before any has its second, so a tenant waits for a turn
// of each other running set and the handoffs between them, about MaxWait. Paying passes nobody for ever:
// being served uses up what was earned, and of a preempted turn only the rest is given.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class RoundRobin : public Policy {
 public:
  explicit RoundRobin(std::string_view name)
      : Policy(name, {.account = {.earns = AccountRules::Earns::pauses,
                                  .pays = AccountRules::Pays::turns,
                                  .most_turns = 1},
                      .preemption = Preemption::paid}) {}

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    return {.level = (is_urgent(waiting, turn) ? 2 : 0) + (waiting.preempted ? 1 : 0),
            .weight = waiting.waited};
  }

  bool preempts(const TenantView& waiting, const TenantView& /*running*/,
                const TurnView& turn) const override {
    return is_urgent(waiting, turn);
  }

 private:
  // Nobody preempts turns of a fixed length.
  static bool is_urgent(const TenantView& waiting, const TurnView& turn) {
    return turn.turn.rule != TurnRule::fixed && can_pay(waiting.lag, turn.turn.handoff);
  }
};

}  // namespace sharedgpu
