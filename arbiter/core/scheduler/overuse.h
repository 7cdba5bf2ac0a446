// SPDX-License-Identifier: Apache-2.0
// Overuse: a tenant whose lease was revoked has not left a GPU, or has left it and does not evict what it was
// told to, and others wait for that GPU.
//
// The time counts in which others wait, from the revocation until the tenant has left: until it has drained
// by its own words and evicted what it was told to. A session that takes the place of another of its process
// goes on with that one's time. No time counts in which the tenant is not to blame:
//
//   - its processes are stopped: see turns/presence.h;
//   - it cannot drain because memory was taken from one of its processes for another tenant;
//   - it asks for memory that it may need to drain, for as long as MaxOveruse at most;
//   - it evicts: each byte buys time, as slow copies need it.
//
// Overuse changes no decision of the core, it asks the shell for responses. One thread at a time.
#pragma once

#include <optional>

#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/overdue.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/model/tuning.h"
#include "arbiter/core/turns/presence.h"
#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

class Overuse {
 public:
  Overuse(const Tuning& tuning, const Presence& presence, const MemoryBooks& memory, const TurnMachine& turns,
          Effects& effects)
      : tuning_(tuning), presence_(presence), memory_(memory), turns_(turns), effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  // The tenant, which is out, is about to enter a running set.
  void note_entry(const Tenant& tenant, const Residencies& at);
  // A session of the tenant is gone, with what others waited for; watch() finds what else there is.
  void note_end(const Tenant& tenant);
  // Call it once it is known who waits: last in the advance of the domain.
  void watch(const Domain& domain, const Residencies& at);

  // None: it keeps nobody waiting.
  std::optional<Overdue> of(const Tenant& tenant) const { return tenants_[tenant].overdue; }

 private:
  // How the time until the next look counts.
  enum class Clock : std::uint8_t { stands, runs, evicts, grows };

  // From when others first waited for the tenant until it has left.
  struct Row {
    std::optional<Nanoseconds> since = {};
    std::optional<Overdue> overdue = {};  // as of `watched`
    Clock clock = Clock::stands;          // the same
    Nanoseconds watched{};
    Nanoseconds lasted{};    // all that counted
    Nanoseconds to_evict{};  // that will not count while it evicts
    Nanoseconds to_grow{};   // the same while it asks for memory
    Bytes owed;              // that it has yet to evict
    bool noted = false;      // the responses that it has had
    bool exceeded = false;
  };

  void watch(const Tenant& tenant, const Residencies& at);
  void begin(Row& its) const;
  void pass_time(Row& its) const;
  void note_progress(const Tenant& tenant, Row& its, const Residencies& at) const;
  bool has_left(const Tenant& tenant, const Residencies& at) const;
  const Session* awaited(const Tenant& tenant, const Residencies& at) const;
  Clock clock_for(const Tenant& tenant, const Session& awaited, const Residencies& at) const;
  bool waits(const Tenant& tenant) const;
  bool others_wait(const Gpu& gpu, const Tenant& tenant) const;
  bool others_wait(const Tenant& tenant) const;
  void respond(const Tenant& tenant, const Gpu& gpu, Row& its);

  const Tuning& tuning_;
  const Presence& presence_;
  const MemoryBooks& memory_;
  const TurnMachine& turns_;
  Effects& effects_;
  Table<Tenant, Row> tenants_;
};

}  // namespace sharedgpu
