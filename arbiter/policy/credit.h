// SPDX-License-Identifier: Apache-2.0
// credit: while somebody waits, a tenant that has the GPU or asks for it earns by its units, and pays for the
// time in which it has it or is brought in, twice for what it overuses: the time from the end of its turn
// until its work has ended. The tenant with the most lag is next, also after a turn of its own; so the time
// is shared by units.
//
// A tenant that pauses earns nothing, and keeps what it has. All earn together what those that have the GPU
// pay, so nothing is lost but to the bound on lag and debt, four turns.
//
// Nobody starves: from the deepest debt a tenant needs twice the bound, divided by its part of the units, to
// have as much lag as anybody can. Then each other has at most one turn before it, since of tenants with
// equal lag the one that has waited longest goes first.
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
