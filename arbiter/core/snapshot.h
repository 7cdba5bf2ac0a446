// SPDX-License-Identifier: Apache-2.0
// The core's state as plain values, as of one moment.
//
// It is the view of that state that the daemon, the simulator and the tests have; the figures have another
// (sighting.h). A snapshot stays as it is when the core goes on. All times are in nanoseconds of the core's
// clock, all sizes in bytes. Entries are in the order of their ids.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/memory/evidence.h"
#include "arbiter/core/model/gpu_condition.h"
#include "arbiter/core/model/overdue.h"
#include "arbiter/core/model/phase.h"
#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The GPUs that a tenant's processes see, see placement.h.
struct Placement {
  unsigned units = 1;  // that it counts with on each of them
  std::vector<GpuUuid> gpus;
};

struct Snapshot {
  struct Session {
    SessionId id;
    TenantId tenant;
    StepName step;
    std::optional<GpuUuid> gpu;  // none until Attach
    MemoryUse use;               // as reported, growth that it waits for included
    Bytes resident_limit;        // upper bound on its evictable resident memory
    bool gate_open = false;
    bool wants = false;          // a thread waits at its gate
    bool frozen = false;         // its process is stopped, as polled last
    bool suspended = false;      // it is, by root, as polled last
    bool stuck = false;          // it cannot evict for the time being
    bool restoring = false;      // it was sent a Restore in this turn
    bool ready = false;          // all of its memory is resident
    bool drained = false;        // leaving: nothing passes its gate, and the GPU is done with its work
    bool returned = false;       // it came back from another arbiter and has not drained since
    bool host_short = false;     // it said in this pause that its job needs host memory
    bool defers_growth = false;  // growth of it waits for host memory to be given back
    std::size_t requests = 0;    // for growth, without a Verdict yet
    std::uint64_t order = 0;     // of the last Revoke or Step
    Bytes prepared_host;         // host memory that the last Prepare named
    std::uint32_t sharers = 0;   // processes that prepare it together, as that Prepare says; zero: unknown
    // The contents of its lease page:
    bool contended = false;
    bool oversubscribed = false;
    Nanoseconds queue{};          // the backlog limit; zero: as usual
    Nanoseconds turn_ends{};      // zero: open end
    Evidence evidence;            // of its process's memory on the GPU, by surveys
    Allowed allowed;              // the most at any time since the last survey
    bool claims_nothing = false;  // neither a context nor memory on the GPU
  };

  struct Tenant {
    TenantId id;
    Phase phase = Phase::out;
    Epoch epoch;
    std::vector<SessionId> sessions;
    const Policy* policy = nullptr;  // that rules it
    Claims stated;                   // by its job
    Claims claims;                   // what the deadlines of others leave of them
    bool exclusive = false;          // it has the GPU for itself while it runs
    double share = 0;                // the part of its domain's time that is due to it; zero if none is
    double due = 0;          // the same on the GPU where that is least; if none is due, the last that was
    double due_now = 0;      // the same; zero while it neither competes nor pauses
    Nanoseconds lag{};       // its account, as of the last event; negative: it has had more than its due
    bool wants = false;      // one of its sessions does
    bool frozen = false;     // one of its sessions is
    bool absent = false;     // it is frozen, or announced as suspending
    bool suspended = false;  // Slurm has announced a suspension of it, and not its end
    bool revoked = false;    // its lease was taken without its consent, since its processes do not answer
    bool recalled = false;   // it went before others for its host memory
    std::optional<Overdue> overdue;  // it keeps others waiting though its lease was revoked
    Nanoseconds waiting_since{};
    Nanoseconds turn_began{};
    Nanoseconds gates_closed{};   // the last time
    Nanoseconds yielded_until{};  // the end of the turn that it yielded last
    Nanoseconds handoff{};        // a running mean of what its way in took; zero: unknown
    Nanoseconds last_drain{};  // what the end of its last turn took, if its processes waited for each other
    Nanoseconds used{};        // the GPU time of the burst under way, in the turns before
    Nanoseconds mean_burst{};  // a running mean of that; zero: unknown
    unsigned long_pauses = 0;  // in a row
    struct Deadlines {
      std::uint64_t met = 0;
      std::uint64_t missed = 0;
    } deadlines;
    std::optional<Bytes> host_budget;  // the most host memory that its swap can have; none: unbounded

    bool in_set() const { return phase == Phase::entering || phase == Phase::running; }
  };

  struct Gpu {
    GpuUuid uuid;
    unsigned number = 0;            // in the host's order
    std::optional<unsigned> minor;  // of its device file, if the driver reports it
    Bytes total;
    Bytes capacity;
    bool learned = false;  // known from sessions only
    GpuCondition condition = GpuCondition::healthy;
    bool drained = false;   // by an administrator
    Bytes usable;           // the capacity, or what contexts leave of the total
    bool surveyed = false;  // surveys show the memory of its processes
    Bytes unmanaged;        // then: that of processes that have no session there, and what others hide
    Bytes promised;         // what sessions have on the GPU or may take at any moment
    const Policy* policy = nullptr;
    TurnLength turn;        // how long turns are
    Nanoseconds handoff{};  // the mean of what handoffs took lately; zero: none yet
    // The part of the GPU's threads for a process that starts there with a priority below threads_left_below.
    double threads_left = 1;
    std::int32_t threads_left_below = std::numeric_limits<std::int32_t>::min();
    std::vector<SessionId> sessions;
  };

  bool recovering = false;  // the core waits for the sessions of the arbiter before
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;
  std::vector<Session> sessions;
  std::map<TenantId, Placement> placements;

  // Null where there is none. Valid as long as the snapshot.
  const Gpu* find(const GpuUuid& uuid) const { return lookup(gpus, uuid, &Gpu::uuid); }
  const Tenant* find(TenantId id) const { return lookup(tenants, id, &Tenant::id); }
  const Session* find(SessionId id) const { return lookup(sessions, id, &Session::id); }

 private:
  template <class Entry, class Key>
  static const Entry* lookup(const std::vector<Entry>& entries, const Key& key, Key Entry::*id) {
    const auto found = std::lower_bound(entries.begin(), entries.end(), key,
                                        [id](const Entry& one, const Key& its) { return one.*id < its; });
    return found == entries.end() || (*found).*id != key ? nullptr : &*found;
  }
};

}  // namespace sharedgpu
