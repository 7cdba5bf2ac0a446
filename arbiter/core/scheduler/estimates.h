// SPDX-License-Identifier: Apache-2.0
// Estimates of each tenant's use of the GPU: the durations of its handoffs, bursts, pauses and submissions,
// measured or guessed. Not thread-safe.
#pragma once

#include <optional>

#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"
#include "arbiter/core/scheduler/turn_lengths.h"
#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

class Estimates {
 public:
  Estimates(const Tuning& tuning, const Presence& presence, const MemoryBooks& memory,
            const TurnMachine& turns, const TurnLengths& lengths, const Effects& effects)
      : tuning_(tuning),
        presence_(presence),
        memory_(memory),
        turns_(turns),
        lengths_(lengths),
        effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  void add(const Session& session) { sessions_.begin(session); }

  // ---- events ----

  // The tenant asks for the GPU, perhaps after a pause. `first`: no session of the tenant was asking
  // already.
  void on_want(const Tenant& tenant, bool first);
  void on_idle(const Session& session, Nanoseconds idle);
  void on_contended(const Session& session, bool contended);
  void on_submission(const Session& session, Nanoseconds submission) {
    sessions_[session].submission = submission;
  }
  // Call when the tenant is about to leave, before its phase changes.
  void on_leave(const Tenant& tenant);
  void forget_idleness(const Tenant& tenant);
  // `released`: true if the tenant has left the running set because it was idle; false if it has left for
  // another reason, or enters again.
  void set_released_idle(const Tenant& tenant, bool released) { tenants_[tenant].released_idle = released; }
  void on_open(const Tenant& tenant);
  void on_handoff(const Tenant& tenant, Nanoseconds took);

  // ---- read only ----

  // A running mean of the durations of the tenant's handoffs. Zero: no handoff was measured, and
  // expected_handoff() returns a guess from the tenant's size.
  Nanoseconds handoff(const Tenant& tenant) const { return tenants_[tenant].handoff; }
  Nanoseconds expected_handoff(const Tenant& tenant) const;
  // A burst is the tenant's GPU time between two of its pauses, counted only while others wait. Returns a
  // running mean over the bursts, at least the length of the current burst.
  Nanoseconds burst(const Tenant& tenant) const;
  Nanoseconds mean_burst(const Tenant& tenant) const { return tenants_[tenant].burst; }
  Nanoseconds used(const Tenant& tenant) const { return tenants_[tenant].used; }
  // The GPU time of one submission of the tenant; zero: unknown. Known only for tenants for which can_yield()
  // (turn_machine.h) returns true.
  Nanoseconds submission(const Tenant& tenant) const;
  unsigned long_pauses(const Tenant& tenant) const { return tenants_[tenant].long_pauses; }
  // Returns true if the tenant has been idle for so long that its turn is over.
  bool idle_enough(const Tenant& tenant) const;
  bool idle(const Session& session) const { return sessions_[session].idle != Nanoseconds{}; }

 private:
  struct TenantRow {
    Nanoseconds handoff{};
    bool handoff_is_first = false;  // only one handoff has been measured, so `handoff` is no mean yet
    Nanoseconds used{};          // GPU time in the tenant's turns since its last pause, while others waited
    Nanoseconds burst{};         // running mean of `used` at the beginning of pauses; zero: unknown
    Nanoseconds busy_since{};    // the time since which the tenant has held a lease while others wait
    bool released_idle = false;  // the tenant has left because it was idle, and does not ask for the GPU
    unsigned long_pauses = 0;    // number of long pauses in a row, at most kMostLongPauses
  };
  struct SessionRow {
    Nanoseconds idle{};  // how long the session has been idle, by its last report; zero: not idle
    Nanoseconds idle_reported{};
    Nanoseconds submission{};
  };

  Nanoseconds busy_time(const Tenant& tenant) const;
  Nanoseconds idle_time(const Tenant& tenant) const;

  const Tuning& tuning_;
  const Presence& presence_;
  const MemoryBooks& memory_;
  const TurnMachine& turns_;
  const TurnLengths& lengths_;
  const Effects& effects_;
  Table<Tenant, TenantRow> tenants_;
  Table<Session, SessionRow> sessions_;
};

}  // namespace sharedgpu
