// SPDX-License-Identifier: Apache-2.0
// deadline: the shares of elastic, except that tenants with deadlines take the time that they need from
// tenants of lower priority (scheduler/deadline_limits.h). Deadlines limit the time of tenants of lower
// priority even while the GPU is idle, since their work would delay the next piece of work with a deadline.
// Tenants with deadlines run alone.
//
// A tenant with deadlines often cannot wait for the end of a turn, since its deadline is milliseconds away.
// So a tenant with deadlines goes before all tenants of lower priority, and preempts them as soon as they
// have had the GPU for the duration of a handoff, under three conditions. First, handoffs take less than a
// tenth of a deadline. If handoffs took longer, preemption would cost more than it gains, since memory moves
// with every piece of work. Second, if the processes of the preempted tenant wait for each other, that
// tenant's last drain took less time than the deadline. After a longer drain, the deadline would be missed in
// spite of the preemption. Third, the debt of the tenant with deadlines is below allowance(): one deadline of
// at most 100 ms, or half a slice (elastic.h) if that is longer. So a piece of work that can meet its
// deadline is done in one turn, and a tenant that always has work is served as under elastic. A tenant that
// does not meet the conditions waits for its turns like any other.
//
// All other tenants in the domain of a tenant with deadlines run one at a time, since each running tenant has
// to drain before the tenant with deadlines can begin. The backlog limit of these tenants is smaller
// (backlog_limit_beside()).
//
// Since handoffs also take time, tenants with deadlines may never receive their full share. They would then
// always go first, and the other tenants would never run. Therefore a tenant counts as starving if its
// account is full and it has waited for longer than two turns of each running set. A starving tenant is the
// first of the waiting tenants, and nobody preempts it while it runs. A starving tenant preempts nobody.
// While a starving tenant waits, tenants with deadlines may still preempt others.
//
// Nobody starves forever: deadlines leave each tenant at least the share that it requested, or a twentieth of
// the time if that is more (but at most the tenant's limit). Each tenant waits for its turn at most as long
// as under elastic with that share. A tenant that has not reported a deadline for a while does not limit
// other tenants.
#pragma once

#include "arbiter/policy/elastic.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Deadline final : public Elastic {
 public:
  explicit Deadline(std::string_view name)
      : Elastic(name, {.by_requests = true, .deadlines = true}, Preemption::free) {}

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    int level = is_urgent(waiting, turn) ? 1 + kHighestPriority + waiting.claims.priority : 0;
    if (starves(waiting, turn)) level = 2 + 2 * kHighestPriority;
    return {.level = level, .weight = lag_in_line(rules().account, waiting)};
  }

  bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override {
    return goes_before(waiting, running, turn) && running.last_drain < waiting.claims.deadline &&
           !starves(running, turn);
  }

  Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const override {
    if (!is_quick(waiting, turn) || is_urgent(waiting, turn) || waiting.due <= 0) return Nanoseconds::max();
    return time_to_earn(-allowance(rules().entitlement, waiting, turn) - waiting.lag, waiting.due);
  }

  bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const override {
    if (goes_before(running, waiting, turn)) return true;
    return !goes_before(waiting, running, turn) && Elastic::extends(running, waiting, turn);
  }

 private:
  // Returns true if a waiting tenant starves, or if a running tenant starved when its gates were opened.
  bool starves(const TenantView& tenant, const TurnView& turn) const {
    constexpr int kTurns = 2;
    return is_full(rules().account, lag_when_served(tenant, tenant.elapsed), tenant) &&
           tenant.waited > kTurns * (turn.turn.waiting_sets + 1) * turn.turn.length;
  }

  bool is_urgent(const TenantView& tenant, const TurnView& turn) const {
    return is_quick(tenant, turn) && tenant.lag > -allowance(rules().entitlement, tenant, turn);
  }

  bool goes_before(const TenantView& urgent, const TenantView& other, const TurnView& turn) const {
    return is_urgent(urgent, turn) && urgent.claims.priority > other.claims.priority;
  }
};

}  // namespace sharedgpu
