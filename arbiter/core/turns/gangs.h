// SPDX-License-Identifier: Apache-2.0
// The tenants of jobs that span nodes: the orders of their coordinators, and the reports of this node.
//
// A tenant of a gang begins and ends no turn by itself. In every advance of the domain, the planner says anew
// whether it offers a turn to the tenant or asks for the end of its turn. The turn begins or ends when the
// coordinator's order comes. A tenant with Tenant::gang == false needs no order: its job has one node, or has
// turns on each node by itself. One thread at a time.
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
  // Like end(), but the request lasts until the tenant has left: begin() does not clear it.
  void end_for_good(const Tenant& tenant) { rows_[tenant].broken = true; }
  // Call when the tenant's drained sessions have been allowed to submit once more, as often as the order
  // says.
  void note_steps(const Tenant& tenant) { rows_[tenant].steps = rows_[tenant].order.steps; }
  void settle(const Tenant& tenant) { rows_[tenant].settled = true; }
  // Call when the tenant enters the running set.
  void note_entry(const Tenant& tenant) {
    if (tenant.job != 0 && !tenant.gang) rows_[tenant].entered_apart = true;
  }
  // Sends the report if it differs from the last one. Before that, fills in its fields number, offers, ends,
  // steps and settled.
  void publish(const Tenant& tenant, GangReport report);

  // ---- what the order says ----

  bool must_enter(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::enter) || says(tenant, GangCommand::run));
  }
  bool must_leave(const Tenant& tenant) const {
    return tenant.gang && (says(tenant, GangCommand::leave) || says(tenant, GangCommand::wait));
  }
  // Returns true if the tenant leaves the running set only by an order, which end() asks for.
  bool must_be_asked(const Tenant& tenant) const { return tenant.gang && !must_leave(tenant); }
  bool may_open(const Tenant& tenant) const { return !tenant.gang || says(tenant, GangCommand::run); }
  // Returns true if the tenant may leave as soon as it has drained on this node, because no other node needs
  // a further submission from it.
  bool may_finish(const Tenant& tenant) const {
    return !tenant.gang || (rows_[tenant].ordered && !says(tenant, GangCommand::leave));
  }
  // Returns true if a member is not in the running set of its node. As long as this is so, nothing that this
  // tenant submits helps another member to drain.
  bool lacks_place(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.lacks;
  }
  bool others_drain(const Tenant& tenant) const {
    return tenant.gang && !says(tenant, GangCommand::wait) && rows_[tenant].order.drains;
  }
  // Returns true if the gang may have a turn on other nodes. True also before the first order.
  bool may_have_turn(const Tenant& tenant) const { return tenant.gang && !says(tenant, GangCommand::wait); }
  bool others_grow(const Tenant& tenant) const {
    return tenant.gang && says(tenant, GangCommand::leave) && rows_[tenant].order.grows;
  }
  bool owes_step(const Tenant& tenant) const {
    return tenant.gang && rows_[tenant].order.steps > rows_[tenant].steps;
  }
  // Returns true if all nodes of the tenant's job are in contact.
  bool in_contact(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.possible; }
  // Returns true if a turn of the tenant can begin.
  bool possible(const Tenant& tenant) const {
    return in_contact(tenant) && !(tenant.gang && rows_[tenant].order.stopped);
  }
  // Returns true if the tenant's job spans nodes that are not known to reach each other. Such a tenant begins
  // no turn, or has its turns on this node by itself.
  bool is_apart(const Tenant& tenant) const {
    return tenant.job != 0 && (!tenant.gang || !rows_[tenant].ordered || !rows_[tenant].order.possible);
  }
  // For two jobs that are apart, returns true if job `one` goes before job `other`. A job that has begun its
  // turn here goes first, since its work on other nodes may wait for this node. Otherwise the job that Slurm
  // started first goes first, on all nodes alike.
  bool goes_before(const Tenant& one, const Tenant& other) const;
  bool wanted(const Tenant& tenant) const {
    return must_enter(tenant) || (tenant.gang && rows_[tenant].order.wanted);
  }
  bool is_urgent(const Tenant& tenant) const { return must_enter(tenant) && rows_[tenant].order.urgent; }
  bool idle(const Tenant& tenant) const { return !tenant.gang || rows_[tenant].order.idle; }
  Nanoseconds since(const Tenant& tenant) const { return rows_[tenant].order.since; }
  // Returns true if an offer of this node may have let the tenant's turn begin on other nodes.
  bool is_bound(const Tenant& tenant) const;
  // Returns true if gang `one` has waited longer than gang `other`. The answer is the same on all nodes.
  bool is_elder(const Tenant& one, const Tenant& other) const;

 private:
  struct Row {
    GangOrder order;
    bool ordered = false;        // `order` has come
    bool entered_apart = false;  // the tenant has entered without an order, and has had a process here ever
                                 // since
    // When Slurm started the job; max() until the job has turns by itself, so that it comes last.
    Nanoseconds started = Nanoseconds::max();
    bool offers = false;
    bool ends = false;
    bool broken = false;   // its turn ends for good, until it has left
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
