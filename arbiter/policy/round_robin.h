// SPDX-License-Identifier: Apache-2.0
// round-robin: waiting tenants are served in the order in which they began to wait; before them who has been
// interrupted, and first of all who has credit for an interruption (interruption.h).
//
// Nobody starves: of those that wait each has a turn before any has its second, so a tenant waits for a turn
// of each other running set and the handoffs between them, about MaxWait. Credit passes nobody for ever: it
// is used up by being served, and of an interrupted turn only the rest is given.
#pragma once

#include "arbiter/policy/interruption.h"
#include "arbiter/policy/policy.h"

namespace sharedgpu {

class RoundRobin : public Policy {
 public:
  using Policy::Policy;

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    return {.level = (urgent(waiting, turn) ? 2 : 0) + (waiting.interrupted ? 1 : 0),
            .weight = waiting.waited};
  }

  bool interrupts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override {
    return urgent(waiting, turn) && peace_left(running, turn) == Nanoseconds{};
  }

  Nanoseconds price_of_interruption(const TurnView& turn) const override {
    return sharedgpu::price_of_interruption(turn.turn.handoff);
  }

  Nanoseconds peace_left(const TenantView& running, const TurnView& turn) const override {
    return sharedgpu::peace_left(running.credit, running.had, turn.turn.handoff);
  }

  Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const override {
    return sharedgpu::credit_after(credit, standing, time);
  }

 private:
  // Where turns have a fixed length nobody interrupts them.
  static bool urgent(const TenantView& waiting, const TurnView& turn) {
    return turn.turn.rule != TurnRule::fixed && may_interrupt(waiting.credit, turn.turn.handoff);
  }
};

}  // namespace sharedgpu
