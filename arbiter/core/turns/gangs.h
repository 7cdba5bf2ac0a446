// SPDX-License-Identifier: Apache-2.0
// The tenants of jobs that span nodes: the orders of their coordinators, and the reports of this node.
//
// A tenant of a gang begins or ends a turn only when the coordinator's order comes, with one exception: it
// may leave the running set without an order if TurnMachine::may_leave_unasked() is true. In each advance of
// the domain, the planner decides again whether it offers the tenant a turn, and whether it asks the
// coordinator to end the tenant's turn. A tenant with Tenant::gang == false needs no order: its job has one
// node, or no coordinator orders the turns of its job. One thread at a time.
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

  // ---- what the planner says ----

  // Clears the offers of the domain's tenants, and the requests to end their turns.
  void begin(const Domain& domain);
  void offer(const Tenant& tenant) { rows_[tenant].offers = true; }
  void end(const Tenant& tenant) { rows_[tenant].ends = true; }
  // Like end(), but begin() does not clear the request. It lasts until the tenant begins to leave the running
  // set.
  void end_for_good(const Tenant& tenant) { rows_[tenant].broken = true; }
  // Records that the tenant owes none of the single submissions that the order asks for any more.
  void note_steps(const Tenant& tenant) { rows_[tenant].steps = rows_[tenant].order.steps; }
  void settle(const Tenant& tenant) { rows_[tenant].settled = true; }
  // Call when the tenant enters the running set.
  void note_entry(const Tenant& tenant) {
    if (tenant.job != 0 && !tenant.gang) rows_[tenant].entered_apart = true;
  }
  // Fills in the fields number, offers, ends, steps and settled of the report, and sends the report if it
  // differs from the last report.
  void publish(const Tenant& tenant, GangReport report);

  // ---- what the order says ----

  bool must_enter(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::enter) || says(tenant, GangCommand::run));
  }
  bool must_leave(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::leave) || says(tenant, GangCommand::wait));
  }
  // Returns true if the tenant may leave the running set only after an order of the coordinator. To ask the
  // coordinator for this order, call end() or end_for_good().
  bool must_be_asked(const Tenant& tenant) const { return tenant.gang && !must_leave(tenant); }
  bool may_open(const Tenant& tenant) const { return !tenant.gang || says(tenant, GangCommand::run); }
  // Returns true if the tenant may leave as soon as it has drained on this node, because no other node needs
  // a further submission from it. Returns false while the gang is urgent: the gang's work on other nodes
  // waits for a tenant that is in no running set. If drained tenants left then, another gang could grow into
  // their memory.
  bool may_finish(const Tenant& tenant) const {
    return !tenant.gang || (rows_[tenant].ordered && !says(tenant, GangCommand::leave) && !is_urgent(tenant));
  }
  // Returns true if some tenant of the gang is not in the running set of its node. Until that tenant enters,
  // further submissions of the gang's other tenants do not help to drain.
  bool lacks_place(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.lacks;
  }
  bool others_drain(const Tenant& tenant) const {
    return tenant.gang && !says(tenant, GangCommand::wait) && rows_[tenant].order.drains;
  }
  // Returns true if the gang may have a turn on other nodes. Before the first order, this node does not know,
  // so the result is true.
  bool may_have_turn(const Tenant& tenant) const { return tenant.gang && !says(tenant, GangCommand::wait); }
  bool others_grow(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.grows;
  }
  bool owes_step(const Tenant& tenant) const {
    return tenant.gang && rows_[tenant].order.steps > rows_[tenant].steps;
  }
  // Returns true if all nodes of the tenant's job are in contact, or if the tenant is in no gang.
  bool in_contact(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.possible; }
  // Returns true if a turn of the tenant can begin: all nodes of its job are in contact, and the job is
  // stopped on none of these nodes.
  bool possible(const Tenant& tenant) const {
    return in_contact(tenant) && !(tenant.gang && rows_[tenant].order.stopped);
  }
  // Returns true if, as far as this node knows, the gang is in a turn, and its nodes have lost contact. Work
  // on other nodes may wait for this tenant, so no other job that spans nodes may replace it in the running
  // set.
  bool keeps_place(const Tenant& tenant) const {
    return tenant.gang && rows_[tenant].ordered && !rows_[tenant].order.possible &&
           !says(tenant, GangCommand::wait);
  }
  // Returns true if the tenant's job spans nodes that are not known to reach each other. Such a tenant begins
  // no turn, or has turns on this node that no coordinator orders.
  bool is_apart(const Tenant& tenant) const {
    return tenant.job != 0 && (!tenant.gang || !rows_[tenant].ordered || !rows_[tenant].order.possible);
  }
  // For two tenants whose jobs are apart (is_apart()), returns true if `one` gets a turn before `other`. A
  // tenant that has begun its turn on this node comes first, since the job's work on other nodes may wait for
  // this node. Otherwise the job that Slurm started first comes first, so that all nodes choose the same job.
  bool goes_before(const Tenant& one, const Tenant& other) const;
  bool wanted(const Tenant& tenant) const {
    return must_enter(tenant) || (tenant.gang && rows_[tenant].order.wanted);
  }
  bool is_urgent(const Tenant& tenant) const { return must_enter(tenant) && rows_[tenant].order.urgent; }
  bool idle(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.idle; }
  Nanoseconds since(const Tenant& tenant) const { return rows_[tenant].order.since; }
  // Returns true if the coordinator may have begun the tenant's turn because of an offer of this node.
  bool is_bound(const Tenant& tenant) const;
  // Returns true if gang `one` has waited longer than gang `other`. The answer is the same on all nodes.
  bool is_elder(const Tenant& one, const Tenant& other) const;

 private:
  struct Row {
    GangOrder order;
    bool ordered = false;  // the coordinator's order, stored in `order`, has come
    // the tenant has entered without an order, or was not out when its nodes lost contact; no order has come
    // since then, and the tenant has had processes on this node all the time
    bool entered_apart = false;
    // The time at which Slurm started the job; max() while a coordinator orders the job's turns.
    Nanoseconds started = Nanoseconds::max();
    bool offers = false;
    bool ends = false;
    // end_for_good() was called, and the tenant has not begun to leave the running set since
    bool broken = false;
    bool settled = false;  // settle() was called
    std::uint64_t steps = 0;
    GangReport sent;
    std::uint64_t withdrawn = 0;  // the number of the report that last withdrew an offer
  };

  bool says(const Tenant& tenant, GangCommand command) const {
    return rows_[tenant].ordered && rows_[tenant].order.command == command;
  }

  Effects& effects_;
  std::uint64_t last_number_ = 0;  // number of the last report
  Table<Tenant, Row> rows_;
};

}  // namespace sharedgpu
