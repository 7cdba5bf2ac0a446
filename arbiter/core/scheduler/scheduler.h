// SPDX-License-Identifier: Apache-2.0
// The scheduler knows how long tenants have waited, their accounts, estimates of their use of the GPU, and
// the length of turns. Planner uses these values and the policy's ranking to decide which tenants run.
//
// Recall: a tenant enters before its turn, because its evicted memory occupies host memory that its job
// needs. The recall lasts from the entry to the exit of the tenant.
//
// The scheduler changes no phase and no memory. The core reports events to the scheduler through the on_...()
// functions. Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/scheduler/accounts.h"
#include "arbiter/core/scheduler/deadline_limits.h"
#include "arbiter/core/scheduler/estimates.h"
#include "arbiter/core/scheduler/selection.h"
#include "arbiter/core/scheduler/turn_lengths.h"
#include "arbiter/core/turns/move.h"
#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

class Scheduler {
 public:
  // The turn of a domain's running set, and the time that is left of the turn, as the policy computes it.
  struct Turn {
    TurnState state;
    Nanoseconds left{};
    bool over() const { return state.begun && left <= Nanoseconds{}; }
  };

  Scheduler(const Tuning& tuning, const Model& model, const Presence& presence, const MemoryBooks& memory,
            const TurnMachine& turns, const Gangs& gangs, Effects& effects);

  void add(const Tenant& tenant);
  void add(const Session& session);
  void add(const Gpu& gpu);
  void set_rules(const Gpu& gpu) { lengths_.set_rules(gpu, model_.rules_of(gpu.uuid)); }
  // Call when the domains have been recomputed.
  void on_domains();
  // Call when the tenant's job states new Claims (share, limit, priority, deadline), before `tenant.stated`
  // is changed.
  void restate(const Tenant& tenant, const Claims& stated);
  void on_end(const Tenant& tenant) {
    accounts_.keep(tenant);
    end_recall(tenant);
  }

  // ---- events ----

  // A session asks for the GPU. `first`: no session of the session's tenant was asking already.
  void on_want(const Session& session, bool first, bool host_short);
  void on_waiting(const Tenant& tenant) { tenants_[tenant].waiting_since = effects_.now(); }
  void on_idle(const Session& session, Nanoseconds idle) { estimates_.on_idle(session, idle); }
  // The session ends its turn early, for tenants that wait.
  void on_yield(const Session& session);
  void forget_yields(const Domain& domain);
  void on_drained(const Session& session, Nanoseconds submission, bool wants);
  // Returns false if the report must not limit other tenants.
  bool on_deadlines(const Tenant& tenant, const DeadlinesSeen& seen) { return limits_.report(tenant, seen); }
  void apply_deadlines(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  void lift_limits(const Domain& domain);

  // Call before_leave() before the tenant's phase changes, and after_leave() after the tenant has left.
  void before_leave(const Tenant& tenant);
  void after_leave(const Move::Leave& leave);
  void on_displaced(const Tenant& tenant) { tenants_[tenant].displaced = true; }
  // Returns the state with which a tenant enters its turn.
  TurnMachine::Entry on_enter(const Move& move);
  void after_enter(const Domain& domain, const Move& move);
  void on_open(const Domain& domain, const Tenant& tenant, std::optional<Nanoseconds> handoff,
               const Residencies& at);
  void on_another_turn(const Tenant& tenant) { tenants_[tenant].waited = {}; }
  void on_contended(const Session& session, bool contended) { estimates_.on_contended(session, contended); }

  // ---- advancing a domain ----

  void set_turn_length(const Domain& domain, const Residencies& at);
  // Returns true if a turn may have to end, for other tenants or because an exclusive tenant has a limit on
  // its time, so that tenants must limit the work that they queue.
  bool oversubscribed(const Domain& domain, const Residencies& at);
  void update_accounts(const Domain& domain, bool contended, bool oversubscribed);
  // Wakes the core when the turn is over or may be preempted, or when a tenant has used up its limit. Returns
  // the end of the turn; zero: no end. `seen_over`: the planner has treated the turn as over in this advance.
  // If the turn has ended after the planner ran, requests another advance.
  Nanoseconds watch_turn(const Domain& domain, bool seen_over, const Residencies& at);

  // ---- read only ----

  // Returns true if the tenant waits for a turn: it has asked for the GPU and could use it.
  bool waits(const Tenant& tenant) const;
  // Returns true if a session of the tenant waits at its gate. For a job that spans nodes, sessions on all
  // its nodes count.
  bool wants(const Tenant& tenant) const;
  bool others_wait(const Domain& domain) const;
  // The tenants that wait for a turn, in the order in which they are served if nothing changes until then.
  std::vector<const Tenant*> waiting(const Domain& domain) const;
  Nanoseconds waiting_since(const Tenant& tenant) const;
  // Returns true if the tenant has used up the limit on its time. This limit applies even if no other tenant
  // waits.
  bool exhausted(const Domain& domain, const Tenant& tenant) const;
  Turn turn_of(const Domain& domain) const;
  TenantView view(const Tenant& tenant) const;
  TurnView view(const Domain& domain, bool over = false) const {
    return {.rules = domain.rules.turns, .turn = lengths_.of(domain), .over = over};
  }
  // Returns true if the tenant ends its turn early (on_yield()), or the time of its recall is over.
  bool yields(const Tenant& tenant) const;
  bool displaced(const Tenant& tenant) const { return tenants_[tenant].displaced; }
  // Returns true if the tenant is leaving, and is expected to have left soon enough that others should wait
  // for it.
  bool is_leaving_soon(const Tenant& tenant) const;
  // Returns true if the tenant has had the GPU and is leaving, and its gates closed less than MaxOveruse ago.
  bool may_leave_yet(const Tenant& tenant) const;
  // Returns true during a recall of the tenant.
  bool recalled(const Tenant& tenant) const;
  // Returns true if the tenant has to be recalled: its evicted memory occupies host memory that its job
  // needs, and the Linux kernel might kill the job for lack of memory.
  bool must_recall(const Tenant& tenant) const;
  bool host_short(const Session& session) const { return host_short_[session].has_value(); }
  Nanoseconds elapsed(const Tenant& tenant) const { return tenants_[tenant].elapsed; }
  Nanoseconds yielded_until(const Tenant& tenant) const { return tenants_[tenant].yielded_until; }
  Nanoseconds waited(const Tenant& tenant) const;
  const Accounts& accounts() const { return accounts_; }
  const Estimates& estimates() const { return estimates_; }
  const DeadlineLimits& limits() const { return limits_; }
  const TurnLengths& lengths() const { return lengths_; }
  Selection& selection() { return selection_; }

 private:
  struct Row {
    Nanoseconds waiting_since{};
    Nanoseconds waited{};    // how long the tenant had waited when it was chosen for the running set; zero
                             // after another turn (on_another_turn())
    Nanoseconds elapsed{};   // the used part of the tenant's preempted turn; the tenant gets the rest later
    bool preempted = false;  // the tenant's turn was preempted
    bool yields = false;     // the tenant ends its present turn early
    // The planned end of the last turn that the tenant has ended early; the tenant does not overuse the GPU
    // before this time.
    Nanoseconds yielded_until{};
    bool displaced = false;  // the tenant left the running set because the set had grown
  };
  struct Facts {
    bool exclusive = false;  // a tenant of the domain runs alone on its GPUs
    bool shares_changed = true;
  };

  struct Recall {
    Nanoseconds began{};
    std::optional<Nanoseconds> ended;
  };

  void end_recall(const Tenant& tenant);
  const Recall* last_recall(TenantId tenant) const;
  // Returns the time at which the recalled tenant has to leave; max() if it is still entering, or was not
  // recalled.
  Nanoseconds recall_over(const Tenant& tenant) const;
  std::vector<TurnDemand> turn_demands(const Domain& domain) const;

  const Tuning& tuning_;
  const Model& model_;
  const Presence& presence_;
  const MemoryBooks& memory_;
  const TurnMachine& turns_;
  const Gangs& gangs_;
  Effects& effects_;
  TurnLengths lengths_;
  Estimates estimates_;
  DeadlineLimits limits_;
  Accounts accounts_;
  Selection selection_;
  Table<Tenant, Row> tenants_;
  // When the session last reported that its job needs the host memory in which its evicted contents are kept.
  Table<Session, std::optional<Nanoseconds>> host_short_;
  Table<Domain, Facts> facts_;
  // Each tenant's last recall. An entry is kept as long as it delays recalls, of this tenant or of other
  // tenants, even if the recalled tenant has ended.
  std::map<TenantId, Recall> recalls_;
  Table<Gpu, TenantId> recalled_last_;  // the tenant that was last recalled in the GPU's domain
};

}  // namespace sharedgpu
