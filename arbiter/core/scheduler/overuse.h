// SPDX-License-Identifier: Apache-2.0
// Overuse: a tenant keeps others waiting for a GPU in one of three ways. The tenant has not left the GPU
// since its lease was revoked. Or the tenant has not evicted memory that it was told to evict. Or its
// processes are stopped, and their memory on the GPU leaves no room for a waiting tenant.
//
// Time counts as overuse while others wait, from the revocation until the tenant has drained and has evicted
// as ordered. The measurement begins again at zero after that, or after a while without a waiting tenant. It
// continues if a process reconnects. Time does not count as overuse in these cases:
//
//   - Slurm has suspended the tenant, and all of its processes that others wait for are stopped, see
//     turns/presence.h;
//   - the tenant evicts: for each byte that leaves the GPU, the time that a slow copy takes does not count;
//   - the tenant asks for memory that it may need to drain (this exception covers at most MaxOveruse);
//   - the tenant cannot drain because memory was taken from one of its processes for another tenant (this
//     exception covers at most the time in which the other tenant must drain or be ended);
//   - the arbiter itself does not run, and handles no messages.
//
// When a tenant exceeds MaxOveruse, the core notifies the daemon (Overstay), once for each GPU on which
// others wait for the tenant. With OnOveruse=cancel the core repeats the notification, since the tenant may
// start new processes.
//
// Overuse does not change which tenants run. It makes the core notify the daemon, and while the daemon ends
// the tenant, new sessions of the tenant get no single submissions (TurnMachine::submit_once()). Not
// thread-safe.
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
  // Call when the tenant is about to enter a running set.
  void note_entry(const Tenant& tenant, const Residencies& at);
  // Call when a session of the tenant has ended. The next watch() finds out which of the tenant's other
  // sessions others wait for.
  void note_end(const Tenant& tenant);
  // Call at the end of the domain's advance, when it is known which tenants wait.
  void watch(const Domain& domain, const Residencies& at);

  // Call if the arbiter did not run for `standstill`, so that the time `standstill` does not count.
  void pass_over(const Model& model, Nanoseconds standstill);

  // Call when the overuse rules have changed: the new rules may request a response that the old rules have
  // requested before.
  void forget_responses(const Model& model);

  // Returns true if others have waited for the tenant for longer than MaxOveruse and its processes are being
  // ended.
  bool is_being_ended(const Tenant& tenant) const {
    const Row& its = tenants_[tenant];
    return tuning_.overuse && tuning_.overuse->cancel && !its.next_response.empty() &&
           its.lasted >= tuning_.overuse->most;
  }
  // Returns nullopt if the tenant keeps nobody waiting.
  std::optional<Overdue> of(const Tenant& tenant) const { return tenants_[tenant].overdue; }

 private:
  // How the time until the next check counts: not at all (stands), fully (runs), or by one of the exceptions
  // in the list at the top of this file.
  enum class Clock : std::uint8_t { stands, runs, evicts, grows, lacks };
  static constexpr std::size_t kClocks = 5;

  // The fields are set from the time at which others first waited for the tenant until the tenant has left.
  struct Row {
    std::optional<Nanoseconds> since = {};
    std::optional<Overdue> overdue = {};  // at the time `watched`
    Clock clock = Clock::stands;          // at the time `watched`
    Nanoseconds watched{};
    Nanoseconds lasted{};                      // all time that counted as overuse
    std::array<Nanoseconds, kClocks> spare{};  // for each Clock, the remaining time that does not count
    Bytes owed;  // at the last check: memory that the tenant had to evict outside its turn
    std::optional<Nanoseconds> calm_since = {};      // the time since which no other tenant on this
                                                     // tenant's GPUs has waited
    bool noted = false;                              // the note has been sent
    std::map<GpuUuid, Nanoseconds> next_response{};  // when the response after MaxOveruse is requested next;
                                                     // max(): never

    Nanoseconds& spare_in(Clock state) { return spare[static_cast<std::size_t>(state)]; }
  };

  // For each GPU that was checked: the tenants whose stopped processes hold memory that a waiting tenant
  // would need even if the waiting tenant ran alone.
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
