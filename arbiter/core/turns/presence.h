// SPDX-License-Identifier: Apache-2.0
// Presence: tells which processes cannot answer since they are stopped (by Slurm's suspend, by Ctrl-Z or by a
// debugger), and which tenants Slurm is about to suspend.
//
// A stopped process sends nothing, so its state is polled when an answer is overdue. While a tenant runs and
// others wait, no answer is overdue, but the tenant has to leave if all of its processes are stopped. So the
// arbiter polls one process of this tenant in each period. As soon as a process is found stopped, the arbiter
// polls all processes of the tenant. Slurm notifies its slurmstepds of a suspension two seconds before it
// stops the processes, and the slurmstepds notify the arbiter. Before the stop, the tenant drains and evicts
// as much memory as it can.
#pragma once

#include <vector>

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"

namespace sharedgpu {

class Presence {
 public:
  Presence(const Tuning& tuning, Effects& effects) : tuning_(tuning), effects_(effects) {}

  void add(const Session& session) { sessions_.begin(session); }
  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  void remove(const Session& session) { set_frozen(session, false); }

  void freeze(const Session& session, bool suspended);
  // Returns true if the session was frozen.
  bool resume(const Session& session) { return set_frozen(session, false); }
  // Call when Slurm is about to stop the tenant's processes (`suspended`), or to resume them.
  void suspend(const Tenant& tenant, bool suspended);
  // Requests an advance of the domain at the time at which suspending() ends.
  void expect_end_of_suspension(const Tenant& tenant) const;
  // Polls the session's process periodically while `owes_answer` is true.
  void poll(const Session& session, bool owes_answer);
  // Polls one of `sessions` in each period, in turn. The periods of all tenants begin at the same times, so
  // that one advance of a domain serves all of its tenants.
  void poll_in_turn(const Tenant& tenant, const std::vector<const Session*>& sessions);

  bool frozen(const Session& session) const { return sessions_[session].frozen; }
  // Returns true if one of the tenant's processes is stopped.
  bool frozen(const Tenant& tenant) const { return tenants_[tenant].frozen > 0; }
  // Returns true if Slurm has announced a suspension less than Tuning::suspend_notice ago, and has not ended
  // it.
  bool suspending(const Tenant& tenant) const { return tenants_[tenant].suspended_until > effects_.now(); }
  // Returns true if Slurm has announced a suspension and has not ended it.
  bool suspended(const Tenant& tenant) const { return tenants_[tenant].suspended; }
  // Returns true if Slurm has suspended the session's process: the process is stopped, and Slurm has
  // announced the suspension, or a poll has found that root has stopped the process.
  bool suspended(const Session& session) const {
    return found_suspended(session) || (frozen(session) && suspended(*session.tenant));
  }
  bool found_suspended(const Session& session) const {
    return frozen(session) && sessions_[session].suspended;
  }
  // Returns true if the tenant could not use a turn: suspending() is true, or one of its processes is
  // stopped.
  bool absent(const Tenant& tenant) const { return suspending(tenant) || frozen(tenant); }

 private:
  static constexpr Nanoseconds kNever = Nanoseconds::min();

  struct Row {
    bool frozen = false;          // as of the last poll, the session's process is stopped
    bool suspended = false;       // as of the last poll, root has stopped the session's process
    Nanoseconds polled = kNever;  // time of the last poll; before the first poll: when the answer became due
  };
  struct TenantRow {
    bool suspended = false;
    Nanoseconds suspended_until{};
    unsigned frozen = 0;  // number of sessions whose process is stopped
    // time of the last poll by poll_in_turn(); before the first poll: the time of the first call
    Nanoseconds polled = kNever;
    std::size_t in_turn = 0;  // number of polls by poll_in_turn()
  };
  bool set_frozen(const Session& session, bool frozen);

  const Tuning& tuning_;
  Effects& effects_;
  Table<Session, Row> sessions_;
  Table<Tenant, TenantRow> tenants_;
};

}  // namespace sharedgpu
