// SPDX-License-Identifier: Apache-2.0
// What policies have in common.
#include "arbiter/policy/policy.h"

namespace sharedgpu {
Rank Policy::keeps(const TenantView& running, const TurnView& turn) const {
  if (running.idle) return {};
  if (turn.over) return {.level = 1, .weight = -running.had};
  return {.level = 1 + (running.leads ? 2 : 0) + (running.grows ? 0 : 1), .weight = running.had};
}

bool Policy::goes_on(const TenantView& /*running*/, const TenantView& /*waiting*/,
                     const TurnView& /*turn*/) const {
  return false;
}

bool Policy::interrupts(const TenantView& /*waiting*/, const TenantView& /*running*/,
                        const TurnView& /*turn*/) const {
  return false;
}

Nanoseconds Policy::price_of_interruption(const TurnView& /*turn*/) const { return {}; }

Nanoseconds Policy::peace_left(const TenantView& /*running*/, const TurnView& /*turn*/) const {
  return Nanoseconds::max();
}

bool Policy::rules_time(const Claims& /*claims*/) const { return false; }

bool Policy::rules_time_of_all(const Claims& /*claims*/) const { return false; }
Nanoseconds Policy::queue_beside(const Claims& /*claims*/) const { return {}; }

std::vector<double> Policy::shares(const std::vector<Claims>& competing) const {
  double units = 0;
  for (const Claims& claims : competing) units += claims.units;
  std::vector<double> shares;
  for (const Claims& claims : competing) shares.push_back(claims.units / units);
  return shares;
}

double Policy::part_after(double /*part*/, const Claims& stated, const DeadlinesSeen& /*seen*/) const {
  return stated.limit;
}

Nanoseconds Policy::turn_left(const TenantView& /*leader*/, Nanoseconds had, const TurnView& turn) const {
  return turn.turn.length - had;
}

Nanoseconds Policy::barred_for(const TenantView& /*waiting*/, const TurnView& /*turn*/) const { return {}; }

Nanoseconds Policy::allowed_for(const TenantView& /*running*/, const TurnView& /*turn*/) const {
  return Nanoseconds::max();
}

TurnLength Policy::length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const {
  return turn_length(rules, handoff, waiting_sets);
}

Nanoseconds Policy::credit_after(Nanoseconds /*credit*/, const Standing& /*standing*/,
                                 Nanoseconds /*time*/) const {
  return {};
}

}  // namespace sharedgpu
