// SPDX-License-Identifier: Apache-2.0
#include "arbiter/policy/round_robin.h"

#include "arbiter/policy/interruption.h"

namespace sharedgpu {
namespace {

// Where turns have a fixed length nobody interrupts them.
bool urgent(const TenantView& waiting, const TurnView& turn) {
  return turn.turn.rule != TurnRule::fixed && may_interrupt(waiting.credit, turn.turn.handoff);
}

}  // namespace

Rank RoundRobin::rank(const TenantView& waiting, const TurnView& turn) const {
  return {.level = (urgent(waiting, turn) ? 2 : 0) + (waiting.interrupted ? 1 : 0), .weight = waiting.waited};
}

bool RoundRobin::interrupts(const TenantView& waiting, const TenantView& running,
                            const TurnView& turn) const {
  return urgent(waiting, turn) && peace_left(running, turn) == Nanoseconds{};
}

Nanoseconds RoundRobin::price_of_interruption(const TurnView& turn) const {
  return sharedgpu::price_of_interruption(turn.turn.handoff);
}

Nanoseconds RoundRobin::peace_left(const TenantView& running, const TurnView& turn) const {
  return sharedgpu::peace_left(running.credit, running.had, turn.turn.handoff);
}

Nanoseconds RoundRobin::credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const {
  return sharedgpu::credit_after(credit, standing, time);
}

std::unique_ptr<Policy> make_round_robin() { return std::make_unique<RoundRobin>(); }

}  // namespace sharedgpu
