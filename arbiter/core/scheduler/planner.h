// SPDX-License-Identifier: Apache-2.0
// The planner of running sets. One pass over a domain finds, move by move, the running set that the policy
// prefers among those that fit. The planner itself changes no running set: the core carries out each Move
// before it asks for the next. core/advance.cpp lists all reasons for which a tenant leaves the running set.
#pragma once

#include <optional>
#include <queue>
#include <vector>

#include "arbiter/core/scheduler/line.h"
#include "arbiter/core/scheduler/scheduler.h"
#include "arbiter/core/turns/move.h"

namespace sharedgpu {

class Planner {
 public:
  Planner(Scheduler& scheduler, const Presence& presence, const MemoryBooks& memory, const TurnMachine& turns,
          Gangs& gangs, Effects& effects, const Domain& domain)
      : scheduler_(scheduler),
        presence_(presence),
        memory_(memory),
        turns_(turns),
        gangs_(gangs),
        effects_(effects),
        domain_(domain),
        policy_(*domain.rules.policy) {}

  // Returns the tenants of the running set that have to leave, because the memory of the set has outgrown the
  // GPU.
  std::vector<const Tenant*> overgrown(const Residencies& at);
  // Begins a pass: reads the running set, and sorts the tenants that wait.
  void begin(const Residencies& at);
  // Returns the next move, or nullopt if the pass is over. `at` must be the state after the last move was
  // carried out.
  std::optional<Move> next(const Residencies& at);
  // Returns true if the turn is over and the policy gives the running set another turn.
  bool gives_another_turn() const { return extends_ && scheduler_.turn_of(domain_).over(); }

 private:
  // A tenant of the running set or a waiting tenant, with the values that the policy uses.
  struct Candidate {
    const Tenant* tenant;
    TenantView view;
    bool for_host = false;  // the tenant must be recalled because its evicted memory occupies host memory
  };
  struct RunningSet {
    Scheduler::Turn turn;
    std::vector<Candidate> members;  // in the order in which they would leave
    bool preemptible = true;         // false if the policy lets no waiting tenant preempt a member
    // True while no member of the running set runs, and the set has members or a tenant is leaving soon
    // (Scheduler::is_leaving_soon()): no tenant may then overtake a tenant that has waited for long.
    bool nobody_passes = false;
    // True: the memory that tenants free when they leave is reserved for a member that has waited for long.
    bool is_kept_free = false;
  };

  void look(const Residencies& at);
  void line_up();
  bool is_in_line(const Tenant& tenant, bool everybody_fits) const;
  bool anybody_could_enter();
  void let_nobody_pass(Nanoseconds waited);
  void sort_as_they_leave(std::vector<Candidate>& members, const Scheduler::Turn& turn) const;
  bool another_job_drains(const Tenant& gang) const;
  bool fits_beside(const Tenant& waiter) const;
  bool stays_for(const Tenant& member, const Tenant& waiter) const;
  bool waits_for_others_apart(const Tenant& waiter) const;
  bool gives_up(const Candidate& member) const;
  bool may_leave(const Candidate& member, const Candidate& waiter) const;
  bool serve(const Candidate& waiter, const Residencies& at, Move& move);
  Move::Leave leave_of(const Candidate& member) const;
  bool make_way(const Candidate& waiter, std::vector<const Candidate*>& leaving);
  void offer(const Candidate& waiting);
  bool is_kept_for_gangs() const;
  bool ask_to_leave(const Candidate& waiting, const std::vector<const Candidate*>& leaving);
  bool fits_at_peak(const Tenant& newcomer, const Residencies& at);
  TurnView turn_view() const { return scheduler_.view(domain_, running_.turn.over()); }

  Scheduler& scheduler_;
  const Presence& presence_;
  const MemoryBooks& memory_;
  const TurnMachine& turns_;
  Gangs& gangs_;
  Effects& effects_;
  const Domain& domain_;
  const Policy& policy_;
  RunningSet running_;
  std::priority_queue<InLine> line_;
  // Set if a tenant has waited for long: the time at which this wait began. Tenants that have had a turn
  // since then do not enter before the waiting tenant. Otherwise two of these tenants could alternate
  // forever, each entering while the other one drains.
  std::optional<Nanoseconds> passed_since_;
  // The gangs for which this pass has found room on this node, or has asked other gangs to leave; see
  // offer().
  std::vector<const Tenant*> gangs_before_;
  // True if memory is kept for a waiting tenant until gangs have left, or for the next turn of a gang. While
  // this is true, no other tenant makes members leave.
  bool is_held_ = false;
  bool moved_ = false;    // next() has returned a move, so the running set has changed
  bool extends_ = false;  // a member stays although the turn is over, for example because the policy gives
                          // it another turn
};

}  // namespace sharedgpu
