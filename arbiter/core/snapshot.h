// SPDX-License-Identifier: Apache-2.0
// The core's state as plain values, at one moment.
//
// The daemon, the simulator and the tests read the core's state through a snapshot. The ledger uses a smaller
// view (sighting.h). A snapshot does not change when the core does. All times are in nanoseconds of the
// core's clock, all sizes in bytes. Entries are sorted by id.
#pragma once

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "arbiter/core/memory/evidence.h"
#include "arbiter/core/memory/host_limits.h"
#include "arbiter/core/model/gpu_condition.h"
#include "arbiter/core/model/overdue.h"
#include "arbiter/core/model/phase.h"
#include "arbiter/policy/policy.h"
#include "protocol/messages.h"

namespace sharedgpu {

// A tenant's placement: the GPUs that its processes may use, see placement.h.
struct Placement {
  unsigned units = 1;  // number of the tenant's units on each of `gpus`
  std::vector<GpuUuid> gpus;
};

struct Snapshot {
  struct Session {
    SessionId id;
    TenantId tenant;
    StepName step;
    std::optional<GpuUuid> gpu;  // none until Attach
    MemoryUse use;               // as reported, including requested growth that is not deferred
    Bytes away;                  // away memory, as granted
    Backend backend = Backend::swap;
    Bytes resident_limit;  // upper bound on the session's evictable resident memory
    bool gate_open = false;
    bool wants = false;       // a thread waits at the session's gate
    bool frozen = false;      // as of the last poll, the session's process is stopped
    bool suspended = false;   // as of the last poll, root has stopped the session's process
    bool stuck = false;       // the session cannot evict at present
    bool restoring = false;   // the session has been sent a Restore since its tenant last entered
    bool ready = false;       // all memory of the session is resident; outside a turn: was resident in the
                              // last turn
    bool drained = false;     // the gate is closed and the session's work on the GPU is done, or the session
                              // has attached while its tenant runs
    bool returned = false;    // the session has reconnected, may be at work, and has not drained since
    bool host_short = false;  // the session has reported a lack of host memory during its current wait at
                              // the gate
    bool defers_growth = false;  // the session's growth waits until host memory is returned or the GPU has
                                 // room
    std::size_t requests = 0;    // requests for memory that have no Verdict yet, except deferred requests
    std::uint64_t order = 0;     // number of the last Revoke or Step message
    Bytes prepared_host;         // host memory named by the last Prepare
    std::uint32_t sharers = 0;   // number of sessions that prepare this host memory together, rounded up to a
                                 // power of two; zero: unknown
    // The fields of the session's lease page:
    bool contended = false;
    bool oversubscribed = false;
    Nanoseconds queue{};          // the backlog limit; zero: the default
    Nanoseconds turn_ends{};      // zero: none
    Evidence evidence;            // the memory that surveys show for the session's process on the GPU
    Bytes disproved;              // evictable memory reported as resident that surveys do not show
    Bytes unreported;             // memory that the session does not report, and that counts as the tenant's
    Allowed allowed;              // the most memory that was allowed to the session since the last survey
    bool claims_nothing = false;  // by its reports, the session has neither a context nor memory on the GPU
  };

  struct Tenant {
    TenantId id;
    Phase phase = Phase::out;
    Epoch epoch;
    std::vector<SessionId> sessions;
    const Policy* policy = nullptr;  // the policy that applies to the tenant
    Claims stated;                   // stated by the tenant's job
    Claims claims;                   // the part of `stated` that the deadlines of other tenants leave
    bool exclusive = false;          // the tenant runs alone on its GPUs
    double share = 0;                // the fraction of the domain's time due to the tenant; zero if none
    // The fraction of a GPU's time that is due to the tenant; if the tenant uses several GPUs, the smallest
    // of its fractions. While the tenant is entitled to no time, `due` keeps its last value.
    double due = 0;
    double due_now = 0;      // `due`, or zero while the tenant neither pauses nor competes (Accounts::Stake)
    Nanoseconds lag{};       // lag as of the last event; negative: the tenant has had more than its share
    bool wants = false;      // a session of the tenant waits at its gate
    bool frozen = false;     // a process of the tenant is stopped
    bool absent = false;     // a process of the tenant is stopped, or a suspension has been announced
    bool suspended = false;  // Slurm has announced a suspension and has not ended it
    bool revoked = false;    // the tenant's lease was ended without an answer from its processes
    bool recalled = false;   // the tenant is recalled for its host memory (scheduler.h)
    std::optional<Overdue> overdue;  // set while the tenant keeps others waiting, see overuse.h
    Nanoseconds waiting_since{};
    Nanoseconds turn_began{};
    Nanoseconds gates_closed{};   // when the tenant's gates last closed
    Nanoseconds yielded_until{};  // planned end of the last turn that the tenant has ended early
    Nanoseconds handoff{};  // running mean of the durations of the tenant's handoffs; zero: none measured
    // Duration of the tenant's last drain if its processes waited for each other meanwhile; otherwise zero.
    Nanoseconds last_drain{};
    Nanoseconds used{};        // GPU time in earlier turns since the tenant's last pause, while others waited
    Nanoseconds mean_burst{};  // running mean of bursts, see Estimates::burst(); zero: unknown
    unsigned long_pauses = 0;  // number of the tenant's long pauses in a row, at most kMostLongPauses
    struct Deadlines {
      std::uint64_t met = 0;
      std::uint64_t missed = 0;
    } deadlines;
    HostLimits host;

    bool in_set() const { return phase == Phase::entering || phase == Phase::running; }
  };

  struct Gpu {
    GpuUuid uuid;
    unsigned number = 0;            // number of the GPU in the host's order
    std::optional<unsigned> minor;  // minor number of the GPU's device file, if the driver reports it
    Bytes total;
    Bytes capacity;
    bool learned = false;  // the GPU is known only from messages of sessions
    GpuCondition condition = GpuCondition::healthy;
    bool drained = false;  // an administrator has drained the GPU
    // Memory for footprints: the capacity, or less if contexts and unmanaged memory leave less.
    Bytes usable;
    bool surveyed = false;  // surveys show the memory of the GPU's processes
    Bytes unmanaged;  // memory of processes without a session on the GPU, and hidden memory of processes with
                      // sessions; zero if not surveyed
    Bytes promised;   // memory that sessions have on the GPU or may allocate on it at any moment, without
                      // contexts
    const Policy* policy = nullptr;
    TurnLength turn;        // length of its turns
    Nanoseconds handoff{};  // see TurnLengths::handoff(); zero: no handoff was measured yet
    // With Rules::by_threads: the fraction of the GPU's threads that deadlines leave to a process that starts
    // on the GPU with a priority below `threads_left_below`.
    double threads_left = 1;
    std::int32_t threads_left_below = std::numeric_limits<std::int32_t>::min();
    std::vector<SessionId> sessions;
  };

  bool recovering = false;  // the core waits for the sessions of the previous arbiter
  std::vector<Gpu> gpus;
  std::vector<Tenant> tenants;
  std::vector<Session> sessions;
  std::map<TenantId, Placement> placements;

  // Returns null if the snapshot has no such entry. The pointer is valid as long as the snapshot.
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
