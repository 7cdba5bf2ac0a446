// SPDX-License-Identifier: Apache-2.0
// The tenants of jobs that span nodes: the orders that they have, and what this node says to them.
//
// Such a tenant begins and ends no turn by itself. Whoever plans offers a beginning or asks for an end; both
// are said anew in every advance of the domain, and the turn begins or ends when the order comes. A tenant
// that is alone on its node may do everything. One thread at a time.
#pragma once

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/gang.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"

namespace sharedgpu {

class Gangs {
 public:
  explicit Gangs(Effects& effects) : effects_(effects) {}

  void add(const Tenant& tenant) { rows_.begin(tenant); }
  void obey(const Tenant& tenant, const GangOrdered& event);

  // ---- what planning says ----

  // Offers and ends have to be said anew.
  void begin(const Domain& domain);
  void offer(const Tenant& tenant) { rows_[tenant].offers = true; }
  void end(const Tenant& tenant) { rows_[tenant].ends = true; }
  // The same until it has left.
  void end_for_good(const Tenant& tenant) { rows_[tenant].broken = true; }
  // Its sessions that had drained have been let submit, as often as the order says.
  void note_steps(const Tenant& tenant) { rows_[tenant].steps = rows_[tenant].order.steps; }
  void settle(const Tenant& tenant) { rows_[tenant].settled = true; }
  // It enters the running set.
  void note_entry(const Tenant& tenant) {
    if (tenant.job != 0 && !tenant.gang) rows_[tenant].entered_apart = true;
  }
  // Sends the report where it is not the last one. Number, offers, ends, steps and
  // whether it has settled are put in here.
  void publish(const Tenant& tenant, GangReport report);

  // ---- what the order says ----

  bool must_enter(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::enter) || says(tenant, GangCommand::run));
  }
  bool must_leave(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::leave) || says(tenant, GangCommand::wait));
  }
  // It leaves only after it has been asked to, see end().
  bool must_be_asked(const Tenant& tenant) const { return tenant.gang && !must_leave(tenant); }
  bool may_open(const Tenant& tenant) const { return !tenant.gang || says(tenant, GangCommand::run); }
  // A tenant that has drained here has left: no other node may need a submission more.
  bool may_finish(const Tenant& tenant) const {
    return !tenant.gang || (rows_[tenant].ordered && !says(tenant, GangCommand::leave));
  }
  // A member has no place in the turn: what this one could submit would help nobody.
  bool lacks_place(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.lacks;
  }
  bool others_drain(const Tenant& tenant) const {
    return tenant.gang && !says(tenant, GangCommand::wait) && rows_[tenant].order.drains;
  }
  // A gang that has had no order may have one on other nodes.
  bool may_have_turn(const Tenant& tenant) const { return tenant.gang && !says(tenant, GangCommand::wait); }
  bool others_grow(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.grows;
  }
  bool owes_step(const Tenant& tenant) const {
    return tenant.gang && rows_[tenant].order.steps > rows_[tenant].steps;
  }
  // Its nodes reach each other.
  bool in_contact(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.possible; }
  // A turn can begin.
  bool possible(const Tenant& tenant) const {
    return in_contact(tenant) && !(tenant.gang && rows_[tenant].order.stopped);
  }
  // Its job spans nodes, and they do not reach each other, as far as it is known yet: it begins no turn, or
  // has its turns by itself.
  bool is_apart(const Tenant& tenant) const {
    return tenant.job != 0 && (!tenant.gang || !rows_[tenant].ordered || !rows_[tenant].order.possible);
  }
  // Of two jobs that are apart: one that has had its turn begun here may have it on other nodes, too, and
  // work there that waits for this one. Else the one that has started first, on all nodes.
  bool goes_before(const Tenant& one, const Tenant& other) const;
  bool wanted(const Tenant& tenant) const {
    return must_enter(tenant) || (tenant.gang && rows_[tenant].order.wanted);
  }
  bool is_urgent(const Tenant& tenant) const { return must_enter(tenant) && rows_[tenant].order.urgent; }
  bool idle(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.idle; }
  Nanoseconds since(const Tenant& tenant) const { return rows_[tenant].order.since; }
  // Its turn may have begun elsewhere by what was offered here.
  bool is_bound(const Tenant& tenant) const;
  // Of two gangs, on all nodes, the one that has waited longer is the elder.
  bool is_elder(const Tenant& one, const Tenant& other) const;

 private:
  struct Row {
    GangOrder order;
    bool ordered = false;        // there is one
    bool entered_apart = false;  // since there is none, as long as a process is here
    // When Slurm has started the job; one that has no turns by itself yet comes last.
    Nanoseconds started = Nanoseconds::max();
    bool offers = false;
    bool ends = false;
    bool broken = false;   // it ends, until it has left
    bool settled = false;  // it has been, at some time
    std::uint64_t steps = 0;
    GangReport sent;
    std::uint64_t withdrawn = 0;  // the number of the report that last withdrew an offer
  };

  bool says(const Tenant& tenant, GangCommand command) const {
    return rows_[tenant].ordered && rows_[tenant].order.command == command;
  }

  Effects& effects_;
  std::uint64_t last_number_ = 0;  // of a report
  Table<Tenant, Row> rows_;
};

}  // namespace sharedgpu
