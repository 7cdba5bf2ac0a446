// SPDX-License-Identifier: Apache-2.0
// priority: the tenant with the highest priority has the GPU for as long as it has work, and takes it from a
// lower one at once, but that has had it for as long as a handoff takes. Those of the same priority take
// turns. For every MaxWait that a tenant waits, since it asked, it counts as one higher, until its turn is
// over.
//
// Nobody starves: one that is lower than all others by P waits (P + 1) times MaxWait, then for a turn of each
// that has waited as long; and keeps its turn against those that come then.
#pragma once

#include <algorithm>

#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Priority final : public Policy {
 public:
  using Policy::Policy;

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    return {.level = priority_of(waiting, turn.rules), .weight = waiting.waited};
  }

  Rank keeps(const TenantView& running, const TurnView& turn) const override {
    Rank rank = Policy::keeps(running, turn);
    constexpr int kLevels = 4;  // of those with the same priority
    if (!running.idle) rank.level += kLevels * (priority_of(running, turn.rules) + kHighestPriority);
    return rank;
  }

  bool goes_on(const TenantView& running, const TenantView& waiting, const TurnView& turn) const override {
    return running.claims.priority > priority_of(waiting, turn.rules);
  }

  bool interrupts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override {
    return peace_left(running, turn) == Nanoseconds{} &&
           priority_of(waiting, turn.rules) > priority_of(running, turn.rules);
  }

  Nanoseconds peace_left(const TenantView& running, const TurnView& turn) const override {
    return std::max(Nanoseconds{}, turn.turn.handoff - running.had);
  }

 private:
  // With what it has waited for.
  static int priority_of(const TenantView& tenant, const TurnRules& rules) {
    constexpr Nanoseconds::rep kMost = 1'000'000;
    return tenant.claims.priority + static_cast<int>(std::min(tenant.waited / rules.max_wait, kMost));
  }
};

}  // namespace sharedgpu
