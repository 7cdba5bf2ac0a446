// SPDX-License-Identifier: Apache-2.0
// credit: while any tenant waits, each tenant that has the GPU or asks for it earns in proportion to its
// units. While others wait, a tenant pays for the time in which it has the GPU or is entering; tenants that
// do so together pay equal parts. If a tenant's work outlasts its turn, the tenant pays once more, and in
// full, for the time from the end of the turn to the end of the work. The tenant with the most lag is next,
// even directly after its own turn. So tenants share the time in proportion to their units.
//
// A tenant that pauses earns nothing and keeps its lag. If no work outlasts its turn, all tenants together
// earn as much as the tenants with the GPU pay. So the sum of all lags is then constant until a tenant
// reaches the bound on lag and debt, which is the length of four turns.
//
// Nobody starves: the wait from the largest possible debt to the largest possible lag is at most twice the
// bound, divided by the tenant's share. After that, every other tenant has at most one turn before this
// tenant, because the tenant that has waited longest goes first among tenants with equal lag.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Credit final : public Policy {
 public:
  explicit Credit(std::string_view name)
      : Policy(name, {.account = {.earns = AccountRules::Earns::share,
                                  .pays = AccountRules::Pays::part_of_turns,
                                  .overuse = 1,
                                  .most_turns = 4}}) {}

  Rank rank(const TenantView& waiting, const TurnView& /*turn*/) const override {
    return {.level = 0, .weight = waiting.lag};
  }

  bool extends(const TenantView& running, const TenantView& waiting,
               const TurnView& /*turn*/) const override {
    return running.lag > waiting.lag;
  }
};

}  // namespace sharedgpu
