// SPDX-License-Identifier: Apache-2.0
// priority: the tenant with the highest priority has the GPU for as long as it has work. A tenant loses the
// GPU to a waiting tenant of higher priority once it has had the GPU for the duration of a handoff. Tenants
// of the same priority take turns. A tenant's priority rises by one for each MaxWait of waiting. The increase
// lasts until the end of the tenant's next turn.
//
// Nobody starves: a tenant whose priority is P below that of all other tenants waits for (P + 1) times
// MaxWait. After that time, it waits at most for one turn of each tenant that has also waited for that long.
// During the tenant's turn, the increase of its priority protects the tenant against preemption by tenants
// that have just arrived.
#pragma once

#include <algorithm>

#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Priority final : public Policy {
 public:
  explicit Priority(std::string_view name) : Policy(name, {.preemption = Preemption::free}) {}

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    return {.level = priority_of(waiting, turn.rules), .weight = waiting.waited};
  }

  bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override {
    return priority_of(waiting, turn.rules) > priority_of(running, turn.rules);
  }

  Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const override {
    return turn.rules.max_wait - waiting.waited % turn.rules.max_wait;
  }

  bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const override {
    return running.claims.priority > priority_of(waiting, turn.rules);
  }

  Rank retain(const TenantView& running, const TurnView& turn) const override {
    Rank rank = Policy::retain(running, turn);
    constexpr int kLevels = 4;  // the number of rank levels that Policy::retain() uses for tenants with work
    if (!running.idle) rank.level += kLevels * (priority_of(running, turn.rules) + kHighestPriority);
    return rank;
  }

 private:
  // The priority, including the increase for waiting.
  static int priority_of(const TenantView& tenant, const TurnRules& rules) {
    constexpr Nanoseconds::rep kMost = 1'000'000;
    return tenant.claims.priority + static_cast<int>(std::min(tenant.waited / rules.max_wait, kMost));
  }
};

}  // namespace sharedgpu
