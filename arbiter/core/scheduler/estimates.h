// SPDX-License-Identifier: Apache-2.0
// Each tenant's way of using the GPU, measured or guessed: the lengths of handoffs to it, of its bursts, of
// its pauses and of its submissions. One thread at a time.
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

  // It asks for the GPU, be it after a pause. `first`: none of its sessions had asked.
  void on_want(const Tenant& tenant, bool first);
  void on_idle(const Session& session, Nanoseconds idle);
  void on_contended(const Session& session, bool contended);
  void on_submission(const Session& session, Nanoseconds submission) {
    sessions_[session].submission = submission;
  }
  // It is about to leave; its phase is still the one before.
  void on_leave(const Tenant& tenant);
  void forget_idleness(const Tenant& tenant);
  // It has lost its place for its idleness, or has one again.
  void set_released_idle(const Tenant& tenant, bool released) { tenants_[tenant].released_idle = released; }
  void on_open(const Tenant& tenant);
  void on_handoff(const Tenant& tenant, Nanoseconds took);

  // ---- read only ----

  // A running mean of its handoffs; zero: none measured. And that, or a guess from its size.
  Nanoseconds handoff(const Tenant& tenant) const { return tenants_[tenant].handoff; }
  Nanoseconds expected_handoff(const Tenant& tenant) const;
  // A running mean of its GPU time from a request to a pause; no less than that of the burst under way.
  Nanoseconds burst(const Tenant& tenant) const;
  Nanoseconds mean_burst(const Tenant& tenant) const { return tenants_[tenant].burst; }
  Nanoseconds used(const Tenant& tenant) const { return tenants_[tenant].used; }
  // The time of the GPU for one of its submissions, if it yields its turn by that; zero: not known.
  Nanoseconds submission(const Tenant& tenant) const;
  unsigned long_pauses(const Tenant& tenant) const { return tenants_[tenant].long_pauses; }
  // It has had nothing to do for so long that its turn is over.
  bool idle_enough(const Tenant& tenant) const;
  bool idle(const Session& session) const { return sessions_[session].idle != Nanoseconds{}; }

 private:
  struct TenantRow {
    Nanoseconds handoff{};
    bool handoff_is_first = false;  // `handoff` is that of one turn alone
    Nanoseconds used{};             // GPU time in its turns since it last paused
    Nanoseconds burst{};            // a running mean of that as it pauses; zero: unknown
    Nanoseconds busy_since{};       // since when it has had a lease that others wait for
    bool released_idle = false;     // it was put out for idleness, and has not asked for the GPU since
    unsigned long_pauses = 0;       // in a row, see idleness.h
  };
  struct SessionRow {
    Nanoseconds idle{};  // for how long, as reported; zero: not idle
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
