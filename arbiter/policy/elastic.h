// SPDX-License-Identifier: Apache-2.0
// elastic: each tenant has a request and a limit, in parts of the GPU's time (Gemini, section 3.5). Among the
// tenants that have work, requests are met first; if they come to more than there is, each gets the same part
// of its own. The rest goes to all by their units, to none beyond its limit.
//
// A tenant's share is entered into its account as time passes, and the time that it has is paid from it: a
// tenant that had too much, since its kernels outlast its turns, has less afterwards. Tenants that have the
// GPU together pay for the time by what is due to each. The account reaches back for a window of 10 s, or a
// turn if that is longer: it holds no more than is due in one, and no more debt than one. In pauses debt is
// earned back as by waiting, and forgotten within about a window. The debt of a limit is not forgotten, since
// a limit is a part of pauses, too. The tenant with the most lag is next; tenants whose accounts are full are
// equal, and go by how long they have waited.
//
// A turn lasts until its tenant is half a step behind, so that accounts stay within about a step of each
// other, and shares are exact over any time in which one is little. It has another if it is ahead of all that
// wait after a few steps, whatever the tenants beside it do to the accounts of all. A step is as short as
// handoffs allow: 15 ms where no memory moves. A turn has room for whole submissions, as many as come next to
// that, since a submission that has begun is waited for (kernel bursts, section 3.4): what that gives or
// takes stays in the accounts.
//
// Tenants that have stated shares have the GPU one at a time, also while memory suffices for all: their
// kernels would share it by rules of its own. The others run together.
//
// Nobody starves: a tenant waits at most for as long as the deepest debt takes to be earned back, which is
// the window divided by what is due to it, and for a turn of each other. What is due to it is at least its
// part of what requests leave, by units, however small its own request, and at most its limit.
#pragma once

#include <algorithm>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Elastic : public Policy {
 public:
  explicit Elastic(std::string_view name) : Elastic(name, {.by_requests = true}) {}

  Rank rank(const TenantView& waiting, const TurnView& /*turn*/) const override {
    return {.level = 0, .weight = lag_in_line(rules().account, waiting)};
  }

  bool extends(const TenantView& running, const TenantView& waiting,
               const TurnView& /*turn*/) const override {
    return lag_in_line(rules().account, running) > lag_in_line(rules().account, waiting);
  }

  // The length of a step. One of n tenants with equal parts falls behind only as fast as the others' parts
  // come to, so it takes n / (n - 1) steps until its turn is over.
  TurnLength length(const TurnRules& turns, Nanoseconds handoff, unsigned waiting_sets) const override {
    constexpr std::chrono::milliseconds kLeastStep{15};
    TurnLength turn = turn_length(turns, handoff, waiting_sets, kLeastStep);
    const unsigned others = std::max(waiting_sets, 1u);
    if (turn.rule == TurnRule::max_wait) turn.length = turn.length * others / (others + 1);
    return turn;
  }

 protected:
  Elastic(std::string_view name, const EntitlementRules& entitlement,
          Preemption preemption = Preemption::never)
      : Policy(name, {.entitlement = entitlement,
                      .account = {.earns = AccountRules::Earns::due,
                                  .pays = AccountRules::Pays::due,
                                  .most_turns = 1,
                                  .window = std::chrono::seconds(10),
                                  .forgets_in = std::chrono::seconds(3)},
                      .preemption = preemption,
                      .lag_ends_turns = true,
                      .preempts_by_rank = !entitlement.deadlines}) {}
};

}  // namespace sharedgpu
