// SPDX-License-Identifier: Apache-2.0
// round-robin: waiting tenants are served in the order in which they began to wait; before them who has been
// interrupted, and first of all who has credit for an interruption (interruption.h).
//
// Nobody starves: of those that wait each has a turn before any has its second, so a tenant waits for a turn
// of each other running set and the handoffs between them, about MaxWait. Credit passes nobody for ever: it
// is used up by being served, and of an interrupted turn only the rest is given.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class RoundRobin : public Policy {
 public:
  std::string_view name() const override { return "round-robin"; }
  Rank rank(const TenantView& waiting, const TurnView& turn) const override;
  bool interrupts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override;
  Nanoseconds price_of_interruption(const TurnView& turn) const override;
  Nanoseconds peace_left(const TenantView& running, const TurnView& turn) const override;
  Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const override;
};

}  // namespace sharedgpu
