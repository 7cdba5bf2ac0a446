// SPDX-License-Identifier: Apache-2.0
// elastic: each tenant has a request and a limit, both fractions of the GPU's time, as in the scheduler
// Gemini ("Enabling Multi-Tenant GPU Sharing Based on Kernel Burst Estimation", section 3.5). The requests of
// tenants that have work are met first. If the sum of these requests exceeds the whole time, each request is
// reduced by the same factor. The remaining time is divided in proportion to units, and no tenant gets more
// than its limit.
//
// A tenant's account earns the tenant's share as time passes, and pays for the time in which the tenant has
// the GPU. If a tenant's kernels outlast its turns, the tenant gets less time afterwards. Tenants that have
// the GPU together divide the payment in proportion to their shares. A window of 10 s, or of one turn if a
// turn is longer, bounds the account. Lag is at most the tenant's share of the window (a hundredth of the
// window if the tenant has a limit), and debt is at most the window. In a pause, a tenant's debt shrinks as
// during a wait. In addition, the rest of the debt is forgotten within about a window, unless the tenant has
// a limit: a limit also holds in pauses. The tenant with the most lag is next. Full accounts count as equal;
// of tenants with full accounts, the one that has waited longest is next.
//
// A slice is a length of time that length() computes from the duration of handoffs: 15 ms if no memory moves.
// A turn lasts until its tenant has a debt of half a slice. So accounts stay within about a slice of each
// other, and shares are exact over times that are much longer than a slice. If the tenant still has more lag
// than all waiting tenants after a few slices, its turn is extended. The length of a turn is rounded to a
// whole number of submissions, since a submission cannot be interrupted (Gemini's kernel bursts, section
// 3.4). The accounts balance the difference in later turns.
//
// Tenants whose jobs state a request have the GPU one at a time, even if memory suffices for all. The reason
// is that the GPU divides its time among concurrent kernels by its own rules. The other tenants run together.
//
// Nobody starves: a tenant waits at most until it has earned back the largest debt, and then for one turn of
// every other tenant. Earning back this debt takes the window divided by the tenant's share. The time that
// remains after all requests is divided in proportion to units, so a tenant with a small request may get more
// than its request. A share is at most the tenant's limit.
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

  // Returns the length of a slice. With n tenants of equal shares, the debt of the tenant that has the GPU
  // grows only as fast as the other tenants earn their shares. So a turn takes n / (n - 1) slices. If
  // max_wait decides the length of turns, the slice is shortened accordingly.
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
