// SPDX-License-Identifier: Apache-2.0
// Which processes cannot answer: those that are stopped, by Slurm's suspend, by Ctrl-Z or by a debugger, and
// those that are announced as suspending.
//
// A stopped process says nothing, so its state is polled where an answer is overdue. A tenant that runs while
// others wait owes no answer, and leaves early only if all of its processes are stopped. So its processes are
// polled in turn, one each period, and all of them as soon as one is found stopped. Slurm tells its
// slurmstepds of a suspension two seconds before it stops the processes, and they tell the arbiter. The
// tenant has that time to drain and to evict all that it can.
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
  // Returns true if it was frozen.
  bool resume(const Session& session) { return set_frozen(session, false); }
  // Slurm is about to stop the tenant's processes, or to have them go on.
  void suspend(const Tenant& tenant, bool suspended);
  // Has the domain advanced again when an announced suspension has not come.
  void expect_end_of_suspension(const Tenant& tenant) const;
  // Polls the session's process now and then, as long as it owes an answer.
  void poll(const Session& session, bool owes_answer);
  // Polls one of these sessions of the tenant now and then, each in its turn. All tenants are polled at the
  // same times, so that one advance of a domain serves all of its own.
  void poll_in_turn(const Tenant& tenant, const std::vector<const Session*>& sessions);

  bool frozen(const Session& session) const { return sessions_[session].frozen; }
  // One of its processes is.
  bool frozen(const Tenant& tenant) const { return tenants_[tenant].frozen > 0; }
  bool suspending(const Tenant& tenant) const { return tenants_[tenant].suspended_until > effects_.now(); }
  // Slurm has announced a suspension of it, and not its end.
  bool suspended(const Tenant& tenant) const { return tenants_[tenant].suspended; }
  // It is stopped, and not by its user: that was announced, or the poll has found it so.
  bool suspended(const Session& session) const {
    return found_suspended(session) || (frozen(session) && suspended(*session.tenant));
  }
  bool found_suspended(const Session& session) const {
    return frozen(session) && sessions_[session].suspended;
  }
  // It could not use the GPU.
  bool absent(const Tenant& tenant) const { return suspending(tenant) || frozen(tenant); }

 private:
  static constexpr Nanoseconds kNever = Nanoseconds::min();

  struct Row {
    bool frozen = false;          // its process is stopped, as polled last
    bool suspended = false;       // it is, by root, as polled last
    Nanoseconds polled = kNever;  // last, or when the answer became due
  };
  struct TenantRow {
    bool suspended = false;
    Nanoseconds suspended_until{};
    unsigned frozen = 0;          // of its sessions
    Nanoseconds polled = kNever;  // one of its sessions in its turn, or when that began
    std::size_t in_turn = 0;      // the number of such polls
  };
  bool set_frozen(const Session& session, bool frozen);

  const Tuning& tuning_;
  Effects& effects_;
  Table<Session, Row> sessions_;
  Table<Tenant, TenantRow> tenants_;
};

}  // namespace sharedgpu
