// SPDX-License-Identifier: Apache-2.0
// The scheduler: what it knows of each tenant's wait, account and habits, and how long turns are. Planner
// makes the decisions from that; the policy ranks.
//
// It changes no phase and no memory: it is told of what happens (on_...), and its answers are values. One
// thread at a time.
#pragma once

#include <map>
#include <optional>

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
  // The turn of a domain's running set, and how much of it is left as the policy says.
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
  // Domains have been found anew.
  void on_domains();
  // The tenant's job states other claims; tenant.stated has the old ones.
  void restate(const Tenant& tenant, const Claims& stated);
  void on_end(const Tenant& tenant) {
    accounts_.keep(tenant);
    end_recall(tenant);
  }

  // ---- events ----

  // A session asks for the GPU. `first`: none of its tenant's had asked.
  void on_want(const Session& session, bool first, bool host_short);
  void on_waiting(const Tenant& tenant) { tenants_[tenant].waiting_since = effects_.now(); }
  void on_idle(const Session& session, Nanoseconds idle) { estimates_.on_idle(session, idle); }
  // It yields its turn, before that is over, to those that wait now.
  void on_yield(const Session& session);
  void forget_yields(const Domain& domain);
  void on_drained(const Session& session, Nanoseconds submission, bool wants);
  // False: the report bounds nobody.
  bool on_deadlines(const Tenant& tenant, const DeadlinesSeen& seen) { return limits_.report(tenant, seen); }
  void apply_deadlines(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  void lift_limits(const Domain& domain);

  // A tenant is about to leave, its phase still the one before; then it has left.
  void before_leave(const Tenant& tenant);
  void after_leave(const Move::Leave& leave);
  void on_displaced(const Tenant& tenant) { tenants_[tenant].displaced = true; }
  // The state that a tenant brings along into its turn.
  TurnMachine::Entry on_enter(const Move& move);
  void after_enter(const Domain& domain, const Move& move);
  void on_open(const Domain& domain, const Tenant& tenant, std::optional<Nanoseconds> handoff,
               const Residencies& at);
  void on_another_turn(const Tenant& tenant) { tenants_[tenant].waited = {}; }
  void on_contended(const Session& session, bool contended) { estimates_.on_contended(session, contended); }

  // ---- advancing a domain ----

  void set_turn_length(const Domain& domain, const Residencies& at);
  // Some turn has to end for others, so that queued work is waited for.
  bool oversubscribed(const Domain& domain, const Residencies& at);
  void update_accounts(const Domain& domain, bool contended, bool oversubscribed);
  // Wakes the core when the turn is over, may be preempted, or a tenant has had all that it may have.
  // Returns when the turn ends; zero: open end. `seen_over`: the plan of this pass took the turn for over;
  // one that has come to its end since then needs another pass.
  Nanoseconds watch_turn(const Domain& domain, bool seen_over, const Residencies& at);

  // ---- read only ----

  bool waits(const Tenant& tenant) const;  // it has asked for the GPU, and could use it
  // A session of it does; of a job that spans nodes, on any of them.
  bool wants(const Tenant& tenant) const;
  bool others_wait(const Domain& domain) const;
  Nanoseconds waiting_since(const Tenant& tenant) const;
  // It has had all that the policy allows, though perhaps no one else wants the GPU.
  bool exhausted(const Domain& domain, const Tenant& tenant) const;
  Turn turn_of(const Domain& domain) const;
  TenantView view(const Tenant& tenant) const;
  TurnView view(const Domain& domain, bool over = false) const {
    return {.rules = domain.rules.turns, .turn = lengths_.of(domain), .over = over};
  }
  // It gives its turn up before that is over: it has said so, or was recalled a while ago.
  bool yields(const Tenant& tenant) const;
  bool displaced(const Tenant& tenant) const { return tenants_[tenant].displaced; }
  // It is on its way out, and not planned around.
  bool is_leaving_soon(const Tenant& tenant) const;
  // It leaves, and has not taken longer for that than MaxOveruse.
  bool may_leave_yet(const Tenant& tenant) const;
  // It went before others for its host memory.
  bool recalled(const Tenant& tenant) const;
  // Its evicted memory is in the way of its job, which the kernel would end for that.
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
    Nanoseconds waited{};         // for so long when it was chosen
    Nanoseconds elapsed{};        // of its turn that was preempted; the rest is still to come
    bool preempted = false;       // its turn was
    bool yields = false;          // its turn, now, before that is over
    Nanoseconds yielded_until{};  // the end of the turn that it yielded last: until then it overuses nothing
    bool displaced = false;       // it lost its place since the running set had grown
  };
  struct Facts {
    bool exclusive = false;  // a tenant of the domain has the GPU for itself while it runs
    bool shares_changed = true;
  };

  // A turn for which a tenant went before others, for its host memory.
  struct Recall {
    Nanoseconds began{};
    std::optional<Nanoseconds> ended;
  };

  void end_recall(const Tenant& tenant);
  const Recall* last_recall(TenantId tenant) const;
  Nanoseconds recall_over(const Tenant& tenant) const;  // max(): it is on its way in, or was not recalled
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
  // When it last said that its job needs the host memory of what was evicted.
  Table<Session, std::optional<Nanoseconds>> host_short_;
  Table<Domain, Facts> facts_;
  // The last one of each tenant, whether that has ended since or not, for as long as it bears on others.
  std::map<TenantId, Recall> recalls_;
  Table<Gpu, TenantId> recalled_last_;  // in the GPU's domain
};

}  // namespace sharedgpu
