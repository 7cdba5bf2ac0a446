// SPDX-License-Identifier: Apache-2.0
// Overuse: a tenant whose lease was revoked has not left a GPU, or has left it and does not evict what it was
// told to, and others wait for that GPU. Or its processes are stopped, and somebody that waits has no room
// beside the memory that they keep there.
//
// The time counts in which others wait, from the revocation until the tenant has left: until it has drained
// by its own words and evicted what it was told to. It is forgotten then, or when nobody has waited for so
// long that those that come next have not suffered from it. A session that takes the place of another of its
// process goes on with that one's time. No time counts in which the tenant is not to blame:
//
//   - Slurm has suspended it, and its processes that others wait for are all stopped: see turns/presence.h;
//   - it evicts: each byte that leaves the GPU buys time, as slow copies need it;
//   - it asks for memory that it may need to drain, for as long as MaxOveruse at most;
//   - it cannot drain because memory was taken from one of its processes for another tenant, for as long as
//     that one may take to drain or to be ended;
//   - the arbiter itself stands still, so that it hears nobody.
//
// The shell is told of a tenant that exceeds MaxOveruse, for each GPU where others wait for it; where it is
// to be ended, again and again, since its processes come and go.
//
// Overuse changes no decision of the core, it asks the shell for responses. One thread at a time.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <set>
#include <vector>

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
          const Gangs& gangs, Effects& effects)
      : tuning_(tuning),
        presence_(presence),
        memory_(memory),
        turns_(turns),
        gangs_(gangs),
        effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  // The tenant, which is out, is about to enter a running set.
  void note_entry(const Tenant& tenant, const Residencies& at);
  // A session of the tenant is gone, with what others waited for; watch() finds what else there is.
  void note_end(const Tenant& tenant);
  // Call it once it is known who waits: last in the advance of the domain.
  void watch(const Domain& domain, const Residencies& at);

  // The arbiter stood still for so long, and heard nobody.
  void pass_over(const Model& model, Nanoseconds standstill);

  // Others have waited for it for longer than MaxOveruse, and its processes are being ended for that.
  bool is_being_ended(const Tenant& tenant) const {
    const Row& its = tenants_[tenant];
    return tuning_.overuse && tuning_.overuse->cancel && !its.next_response.empty() &&
           its.lasted >= tuning_.overuse->most;
  }
  // None: it keeps nobody waiting.
  std::optional<Overdue> of(const Tenant& tenant) const { return tenants_[tenant].overdue; }

 private:
  // How the time until the next look counts.
  enum class Clock : std::uint8_t { stands, runs, evicts, grows, lacks };
  static constexpr std::size_t kClocks = 5;

  // From when others first waited for the tenant until it has left.
  struct Row {
    std::optional<Nanoseconds> since = {};
    std::optional<Overdue> overdue = {};  // as of `watched`
    Clock clock = Clock::stands;          // the same
    Nanoseconds watched{};
    Nanoseconds lasted{};                            // all that counted
    std::array<Nanoseconds, kClocks> spare{};        // that will not count, by the state of the clock
    Bytes owed;                                      // that it has yet to evict, while it is out
    std::optional<Nanoseconds> calm_since = {};      // since when nobody waits for it or for anybody
    bool noted = false;                              // the responses that it has had
    std::map<GpuUuid, Nanoseconds> next_response{};  // after MaxOveruse; max(): none

    Nanoseconds& spare_in(Clock state) { return spare[static_cast<std::size_t>(state)]; }
  };

  // The tenants whose stopped processes are to blame for it that somebody who waits has no room, even where
  // nobody else runs. By GPU, as far as that was asked.
  using Obstacles = std::map<const Gpu*, std::set<const Tenant*>>;

  void watch(const Tenant& tenant, const Residencies& at, Obstacles& obstacles);
  void begin(Row& its) const;
  void pass_time(Row& its) const;
  void note_progress(const Tenant& tenant, Row& its, const Residencies& at) const;
  bool has_left(const Tenant& tenant, const Residencies& at) const;
  std::vector<const Session*> awaited(const Tenant& tenant, const Residencies& at,
                                      Obstacles& obstacles) const;
  Clock clock_for(const Tenant& tenant, const Session& awaited, const Residencies& at,
                  Obstacles& obstacles) const;
  bool waits(const Tenant& tenant) const;
  bool others_wait(const Gpu& gpu, const Tenant& tenant) const;
  bool others_wait(const Tenant& tenant) const;
  bool keeps_out_others(const Session& stopped, const Residencies& at, Obstacles& obstacles) const;
  std::set<const Tenant*> find_obstacles(const Gpu& gpu, const Residencies& at) const;
  void wait_calmly(const Tenant& tenant, Row& its) const;
  void respond(const Tenant& tenant, const std::vector<const Session*>& awaited, Row& its);

  const Tuning& tuning_;
  const Presence& presence_;
  const MemoryBooks& memory_;
  const TurnMachine& turns_;
  const Gangs& gangs_;
  Effects& effects_;
  Table<Tenant, Row> tenants_;
};

}  // namespace sharedgpu
