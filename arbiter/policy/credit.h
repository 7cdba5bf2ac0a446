// SPDX-License-Identifier: Apache-2.0
// credit: while somebody waits, a tenant that has the GPU or asks for it earns by its units, and pays for the
// time in which it has it or is brought in, twice for what it overuses: the time from the end of its turn
// until its work has ended. The one with most credit is next, also after a turn of its own; so the time is
// shared by units.
//
// Who pauses earns nothing, and keeps what it has. What all earn is what those that have the GPU pay, so
// nothing is lost but to the bound on credit and debt, a few turns.
//
// Nobody starves: from the deepest debt a tenant needs twice the bound, divided by its part of the units, to
// have as much credit as anybody can; then at most each other has a turn before it, of those with as much who
// has waited longest first.
#pragma once

#include <algorithm>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Credit final : public Policy {
 public:
  using Policy::Policy;

  Rank rank(const TenantView& waiting, const TurnView& /*turn*/) const override {
    return {.level = 0, .weight = waiting.credit};
  }

  bool goes_on(const TenantView& running, const TenantView& waiting,
               const TurnView& /*turn*/) const override {
    return running.credit > waiting.credit;
  }

  Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const override {
    credit += std::chrono::duration_cast<Nanoseconds>(standing.share * time);
    if (standing.pays || standing.comes_in) credit -= time / std::max(standing.holders, 1u);
    if (standing.overuses) credit -= time;
    return std::clamp(credit, -kMostTurns * standing.turn, kMostTurns * standing.turn);
  }

 private:
  static constexpr int kMostTurns = 4;
};

}  // namespace sharedgpu
