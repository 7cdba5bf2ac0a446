// SPDX-License-Identifier: Apache-2.0
// deadline: the shares of elastic, where tenants with deadlines take from those of lower priority what they
// need (scheduler/deadline_limits.h). The limit on the others holds also while nobody uses the GPU, for their
// work would be in the way of the next piece. Tenants with deadlines have the GPU for themselves while they
// run.
//
// A deadline is a matter of milliseconds, and a turn would be over too late for it. So a tenant with
// deadlines goes before all of a lower priority, and takes the GPU from them at once. There are three
// conditions. Handoffs take no more than a tenth of a deadline: if memory moves with every piece of work,
// that costs more than going first is worth. The end of the other's last turn took no longer than the
// deadline, if its processes wait for each other: both would lose by it. And it has had no more than is due
// to it by one deadline, or by half a step if that is more (allowance()): a piece of work that can be done in
// time is done in one turn, and a tenant that always has work is served as elastic would. A tenant that fails
// them has its turns like any other.
//
// Beside it all others have the GPU one at a time: the queues of all that share it would have to drain first.
// They also have less queued than usual (backlog_limit_beside()).
//
// Handoffs take time too, so tenants with deadlines may never have all that is due to them, and go first all
// the time. A tenant starves if its account is full and it has waited for longer than two turns of each
// running set take. Then it is the first of those that wait, and nobody preempts it while it runs. It
// preempts nobody itself: so a tenant with deadlines behind it may still preempt others than it.
//
// Nobody starves: each keeps its own request at least, or a twentieth of the time if that is more, and waits
// no longer for that than elastic says. A tenant that has told of no deadline for a while bounds nobody.
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
  // For a tenant that runs: whether it starved when its gates were opened.
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
