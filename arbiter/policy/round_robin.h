// SPDX-License-Identifier: Apache-2.0
// round-robin: waiting tenants are served in the order in which they began to wait. A preempted tenant
// precedes tenants that were not preempted. A tenant that can pay for a preemption (preemption.h) precedes
// all others.
//
// Nobody starves: no tenant has a second turn before each waiting tenant has had one. So a tenant waits for
// one turn of every other running set and the handoffs between these turns, about MaxWait in total. A paying
// tenant cannot precede others forever, since its turns use up the time that it has earned. A tenant that was
// preempted gets only the rest of its turn.
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
  // Turns of a fixed length are not preempted.
  static bool is_urgent(const TenantView& waiting, const TurnView& turn) {
    return turn.turn.rule != TurnRule::fixed && can_pay(waiting.lag, turn.turn.handoff);
  }
};

}  // namespace sharedgpu
