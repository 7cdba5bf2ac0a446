// SPDX-License-Identifier: Apache-2.0
// elastic: each tenant has a request and a limit, as fractions of the GPU's time (Gemini, section 3.5). Among
// the tenants that have work, requests are met first; if they exceed the whole, each is reduced by the same
// factor. The rest is divided by units, with no tenant beyond its limit.
//
// A tenant's account earns the tenant's share as time passes, and pays for the time in which the tenant has
// the GPU. A tenant that had too much time because its kernels outlast its turns has less time afterwards.
// Tenants that have the GPU together divide the payment in proportion to their shares. The account covers a
// window of 10 s, or a turn if that is longer: it holds no more lag than the share of one window, and no more
// debt than one window. In pauses debt is earned back as in waits, and is forgotten within about a window.
// The debt of a limit is not forgotten, since a limit also holds in pauses. The tenant with the most lag is
// next; full accounts are equal and are ordered by waiting time.
//
// A turn lasts until its tenant is half a slice behind, so accounts stay within about a slice of each other,
// and shares are exact over any time that is long against a slice. A turn is extended if after a few slices
// its tenant's lag is still larger than that of all waiting tenants. A slice is as short as handoffs allow:
// 15 ms if no memory moves. A turn is rounded to a whole number of submissions, since a submission that has
// begun is waited for (kernel bursts, section 3.4); the accounts keep the difference.
//
// Tenants that have stated shares have the GPU one at a time, even if memory suffices for all: concurrent
// kernels would share it by rules of their own. The other tenants run together.
//
// Nobody starves: a tenant waits at most for the time in which the deepest debt is earned back, which is the
// window divided by its share, plus a turn of each other tenant. However small its request, a tenant's share
// is at least its part, by units, of the time that all requests leave. A share is at most the tenant's limit.
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

  // The length of a slice. One of n tenants with equal shares falls behind only at the rate of the others'
  // shares, so it takes n / (n - 1) slices until its turn is over.
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
