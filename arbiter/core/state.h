// SPDX-License-Identifier: Apache-2.0
// What the arbiter knows: GPUs, tenants, sessions. Plain data; the rules are in core.h's class.
//
// All of it is rebuilt from the sessions' own words and the ledger after a restart.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "arbiter/core/lease_book.h"
#include "arbiter/core/snapshot.h"
#include "arbiter/policy/policy.h"
#include "arbiter/policy/surge.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct Session;
struct Tenant;

// What the turns of a GPU follow from. The policy outlives the core.
struct Rules {
  const Policy* policy = nullptr;
  TurnRules turns = {};
  bool all_timed = false;   // as if all tenants had stated shares, see Claims
  bool by_threads = false;  // deadlines bound the threads of what starts, and nobody's time
  Nanoseconds queue{};      // how short the queues of oversubscribed sessions are kept; zero: as usual
};

// What of a tenant the length of turns was reckoned from.
struct Reckoned {
  bool waits = false;
  struct Turns {
    bool takes = false;
    Nanoseconds seen{};
    Nanoseconds expected{};
    bool operator==(const Turns&) const = default;
  } turns;
  bool operator==(const Reckoned&) const = default;
};
// Whether a tenant is one of those that are meant.
using Among = bool (*)(const Reckoned&);

struct Gpu {
  GpuUuid uuid;
  unsigned number = 0;            // in the host's order
  std::optional<unsigned> minor;  // of its device file, where the driver tells it
  Bytes total;
  Bytes capacity;         // see docs/architecture.md, "Capacity"
  bool learned = false;   // known from a session only; forgotten with the last one
  Rules rules;            // of the site, for this one; see Core::Domain
  TurnLength turn;        // how long turns are here now
  Nanoseconds handoff{};  // what handoffs to those who take turns took lately, on average; zero: none yet
  Nanoseconds drained{};  // when a tenant last ended a turn here
  // By Rules::by_threads: the part of the threads that deadlines leave to those who start here, and whose
  // priority is below this.
  struct Threads {
    double part = 1;
    std::int32_t below = std::numeric_limits<std::int32_t>::min();
  } threads;

  std::vector<Session*> sessions;  // that use it, by their numbers

  Bytes usable;    // as of this step
  Bytes reckoned;  // what was usable when the length of turns was reckoned
  Bytes expected;  // evictions of one tenant, as its sessions were told
  // Scratch of the planner, see choice.cpp.
  Bytes load;
  Bytes least_waiting;           // that one of those adds that wait
  unsigned members = 0;          // tenants that are chosen there
  unsigned timed = 0;            // of those, whose time is ruled
  double due_to_holders = 0;     // the parts of the time of those that have a lease
  bool has_time_for_all = true;  // if all that use it were chosen
};

struct Session {
  SessionId id;
  Tenant* tenant = nullptr;
  Gpu* gpu = nullptr;  // null until Attach
  StepName step;
  bool resumed = false;      // came back after the arbiter's death and has not told its use yet
  bool told_growth = false;  // since it came back it has not asked, and may have told growth not granted yet
  bool growth_counted = false;  // what it asks for it told as it came back: it counts as promised already
  bool expected = false;        // the grace after a restart lasts until what it has is known
  Nanoseconds unknown_since{};  // it came back then, and may be at work until it drains; zero: it is known

  MemoryUse use;                        // as told, growth that it waits for included
  Bytes allowed;                        // may be resident; what it was told, or is about to be told
  Bytes pinned;                         // may be pinned
  Bytes settling;                       // of what is resident, it asks to pin; not in use.pinned yet
  Bytes peak;                           // the largest footprint since its turn began
  Surge surge;                          // of what it has that can be evicted
  std::vector<std::uint64_t> requests;  // Usage requests without a Verdict yet
  Nanoseconds asked_to_grow{};          // when the first of them came
  // Those that wait until host memory of what was freed is given back; their growth is not in `use`.
  std::vector<std::uint64_t> held_back;
  Nanoseconds held_back_at{};  // when the first of them came
  Bytes told_swappable;        // as told last, such growth included
  Bytes job_host_limit;        // as told: on what all steps of the job could have to evict; zero: none

  bool wants = false;
  Nanoseconds host_short{};  // when it last said that its job needs the host memory of what was evicted
  bool ready = false;        // entering: all is resident
  bool released = false;     // leaving: drained
  bool stepped = false;      // leaving: the last time that any of the tenant's were let forward, it was too
  bool evicting = false;     // was told to evict since it was last ready
  bool asked = false;        // entering: was sent Restore in this turn
  bool gate_open = false;
  bool contended = false;     // what its page says
  Nanoseconds turn_ends{};    // the same; zero: open end
  bool told_all = false;      // entering: what it was told then was all it needs
  Nanoseconds told_all_at{};  // entering: when it was told so first
  // Entering: when others last evicted for it what the books did not ask for, or when it was ready and grew.
  Nanoseconds pressed{};
  Epoch epoch;                // the last one it was told
  std::uint64_t order = 0;    // the last Revoke or Step it was sent
  Bytes told_allowed;         // the last `allowed` it was told in Restore
  bool told_again = false;    // entering: it was told the same twice
  Bytes under_way;            // a Restore up to this may still be on its way to a session that is ready
  Nanoseconds news{};         // when it last said or was asked something
  Nanoseconds stuck_until{};  // it could not evict; asking again before then is no use
  Nanoseconds stuck_noted{};  // when the log was last told; zero: never
  bool stopped = false;       // its process is, as seen last: see stopped.cpp
  Nanoseconds looked{};       // when that was last looked at, or a reason for it began; zero: there is none
  Nanoseconds idle_told{};
  Nanoseconds idle{};        // for how long, at idle_told; zero: not idle
  Nanoseconds submission{};  // how long the GPU is at one of its own, as told last; zero: not known

  bool oversubscribed = false;     // what its page says of the GPU
  Nanoseconds queue{};             // and of its queues
  Bytes told_host;                 // the last Prepare
  std::uint32_t told_sharers = 1;  // the same
  Nanoseconds less_host_since{};   // since when less has been enough

  // Scratch of the planner, see choice.cpp.
  Bytes needs;
  Bytes keeps;
  // The same as the length of turns was reckoned from it.
  struct Part {
    Bytes needs;
    Bytes keeps;
    bool operator==(const Part&) const = default;
  } reckoned;

  Bytes adds() const { return minus(needs, keeps); }
  bool stuck(Nanoseconds now) const { return stopped || stuck_until > now; }
};

struct Tenant {
  // On few cache lines, since it is looked at of all, however many wait:
  TenantId id;
  Phase phase = Phase::out;
  bool leads = false;
  bool interrupted = false;       // its turn was
  bool handoff_is_first = false;  // `handoff` is that of one turn alone
  struct Stake {
    bool enters = false;
    bool holds = false;     // a lease
    bool competes = false;  // a part of the time is due to it
    bool operator==(const Stake&) const = default;
  } stake;
  double due = 0;    // that part, on the GPU where it is least; where none is, the last that was
  double share = 0;  // of all the time of its domain; zero where none is due to it
  Reckoned reckoned;
  Nanoseconds credit{};  // as the policy reckons it, at:
  Nanoseconds credit_kept{};
  Standing standing;  // since then
  Claims claims;      // what the deadlines of others leave of them; see deadlines.cpp
  Rules rules;        // of its domain, or of the node where it has none
  Nanoseconds waiting_since{};
  Nanoseconds handoff{};  // a running mean of what turns that were begun for it took to begin; zero: unknown
  Nanoseconds
      drain{};  // what the end of its last turn took where its processes waited for each other; or zero
  Nanoseconds used{};        // of such time, in the turns before, since it last paused
  Nanoseconds burst{};       // a running mean of that as it pauses; zero: unknown
  Nanoseconds given_back{};  // the end of the turn that it gave back last: until then it overuses nothing
  std::vector<Session*> sessions;

  Bytes cap;           // on the footprint, per GPU; zero: none
  Bytes host_cap;      // on the host memory for swap, over all GPUs; zero: none
  Claims stated;       // by its job
  bool timed = false;  // by the policy's rules_time()
  struct Told {
    std::uint64_t met = 0;
    std::uint64_t missed = 0;
    Nanoseconds told{};  // when it last told of any; zero: never
  } deadlines;
  Epoch epoch;               // of its last turn, or of its first to come
  bool epoch_used = false;   // that turn has begun
  bool resuming = false;     // its lease is known from the ledger; its sessions may still be on their way
  Nanoseconds entered{};     // when it was chosen
  Nanoseconds opened{};      // when its gates were opened
  Nanoseconds turn_began{};  // the same for all of a running set
  Nanoseconds left{};        // when its gates were closed
  Nanoseconds step_at{};     // leaving: who has drained is let forward again not before this
  Nanoseconds step_pause{};  // leaving: the least time between a Released and the next step
  Nanoseconds step_took{};   // leaving: the longest time that a Released was waited for after a step
  Nanoseconds changed{};     // leaving: when a session was last let forward, or said Released
  Nanoseconds
      let_on{};  // leaving: when a session could last submit more, let forward or gone on after a stop
  Nanoseconds last_ran{};    // when it last held a lease
  Nanoseconds waited{};      // for so long when it was chosen
  Nanoseconds busy_since{};  // since when it has had a lease that others wait for

  Nanoseconds had{};           // of the turn that was interrupted; the rest is still to come
  bool gives_back = false;     // its turn, now, before that is over
  bool interrupts = false;     // its turn was begun by an interruption
  bool outgrown = false;       // it was put out since the running set had grown
  bool comes_home = false;     // it interrupted others for its host memory
  Nanoseconds brought_home{};  // when the last turn ended for which it did; zero: none yet
  bool idled = false;          // it was put out since it was idle, and has not asked for the GPU again
  unsigned long_pauses = 0;    // so many pauses in a row were long, see policy/idleness.h

  bool taken = false;             // leaving: its lease was taken since its processes are stopped
  Nanoseconds suspended_until{};  // it is about to be stopped, or is, until it is seen to be

  std::size_t domain = 0;  // see Core::Domain, and its place there
  std::size_t place = 0;

  // Scratch of the planner.
  bool chosen = false;
  Bytes to_leave;

  bool in_set() const { return phase == Phase::entering || phase == Phase::running; }
  bool wants() const {
    for (const Session* session : sessions)
      if (session->wants) return true;
    return false;
  }
  bool stopped() const {
    for (const Session* session : sessions)
      if (session->stopped) return true;
    return false;
  }
};

// What a tenant owed as its last process ended. The next one may come at once.
struct Account {
  std::string_view policy;  // that reckoned it
  Nanoseconds credit{};
  Nanoseconds at{};
  Standing pauses;  // since then
};

struct State {
  std::map<GpuUuid, Gpu> gpus;
  std::map<TenantId, Tenant> tenants;
  std::map<SessionId, Session> sessions;
  std::map<TenantId, Placement> placements;  // also of tenants that have no session now
  std::map<TenantId, Account> accounts;      // only of those, for a while
};

}  // namespace sharedgpu
