// SPDX-License-Identifier: Apache-2.0
// The arbiter's core: a deterministic state machine, (state, event, now) -> (state, actions).
//
// The core has no socket, clock, file or thread; the daemon, the tests and the simulator all run this code.
// An event is handled in two parts. on() stores the event's data in the part of the core that owns the data.
// Then the core advances each domain that the event concerns: it decides which tenants run (scheduler/,
// turns/), and which memory moves (memory/). The function advance() derives everything from the state, and
// can be run at any time. So an event that is lost, repeated or late can cause a delay, but no wrong state.
// Core only dispatches: the parts own the state. Not thread-safe.
#pragma once

#include <map>
#include <optional>

#include "arbiter/core/events.h"
#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/model/actions.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/recovery.h"
#include "arbiter/core/scheduler/overuse.h"
#include "arbiter/core/scheduler/planner.h"
#include "arbiter/core/scheduler/scheduler.h"
#include "arbiter/core/sighting.h"
#include "arbiter/core/snapshot.h"
#include "arbiter/core/turns/gangs.h"
#include "arbiter/core/turns/presence.h"
#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

class Core {
 public:
  // `policy` applies to all GPUs until the first RulesSet event. All policies must outlive the core.
  Core(const Tuning& tuning, const Policy& policy, Recovered recovered, Nanoseconds now);
  // Not copyable: its parts refer to each other.
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Returns the actions that follow from the event, in the order in which they are to be performed. `now`
  // must not decrease.
  Actions handle(const Event& event, Nanoseconds now);

  // Drops the tenant's lease times. Call if the tenant will not return, or if its lease times are to begin at
  // zero again. If the tenant held leases under an earlier arbiter and has no session now, also ends these
  // leases.
  Actions forget(TenantId tenant);

  Snapshot snapshot() const;
  // The part of snapshot() about one session; nullopt if the session is unknown. Callers that need the state
  // at each message use this function, because snapshot() is slow.
  std::optional<Snapshot::Session> session(SessionId id) const;
  // The state from which the ledger computes the times and sizes of tenants. The second overload returns only
  // the values that `event`, the last event, may have changed. `actions` are the actions that handle()
  // returned for `event`. After a message of a session, few values are returned; after a timer or a survey,
  // the values of the advanced domains; after other events, all values.
  Sighting sighting() const;
  Sighting sighting(const Event& event, const Actions& actions) const;
  const LeaseBook& leases() const { return turns_.leases(); }
  bool knows(const GpuUuid& gpu) const { return model_.find(gpu) != nullptr; }
  // Returns true if the arbiter itself has found the GPU.
  bool has_found(const GpuUuid& gpu) const {
    const Gpu* known = model_.find(gpu);
    return known != nullptr && !known->learned;
  }
  std::size_t gpus() const { return model_.gpus().size(); }
  // The tenants that wait for a GPU, and the rest of the turn whose end they wait for.
  struct Queue {
    std::vector<TenantId> waiting;  // in the order in which they are served if nothing changes until then
    // The rest of the current turn; zero if the turn is over. None: no turn has begun, or no tenant of
    // the GPU's domain waits.
    std::optional<Nanoseconds> turn_left;
  };
  Queue queue(const GpuUuid& gpu, Nanoseconds now) const;
  // The tenant's sessions on the GPU, each with the sum of its footprint and its away memory.
  std::vector<std::pair<SessionId, Bytes>> footprints(TenantId tenant, const GpuUuid& gpu) const;
  // How much of its memory the tenant still has to evict, summed over all GPUs.
  Bytes to_evict(TenantId tenant) const;
  Bytes away(TenantId tenant) const;  // the away memory of all sessions of the tenant
  bool in_grace() const { return recovery_.active(); }

  // The fraction of the GPU's threads that a process gets if the process starts now and its tenant has these
  // Claims (priority, request, limit); see Rules::by_threads.
  static double threads_on(const Snapshot::Gpu& gpu, const Claims& claims);

  // The total and free memory of a GPU as the tenant sees it. `limit` is the limit on the tenant's footprint
  // (zero: none). The tenant needs no session on the GPU. `can_be_away`: the library of the asking process
  // can keep memory away; this matters only if the tenant has sessions, but none on this GPU.
  using Room = MemoryBooks::Room;
  Room room(const GpuUuid& gpu, TenantId tenant, Bytes limit, const StepName& step,
            bool can_be_away = false) const;
  // Returns the limit that forbids the session to allocate `size` more bytes, which are pinned memory if
  // `pinned` is true and evictable memory otherwise. `bound` of the reply is `none` if no limit forbids this,
  // or the session is unknown or not attached. The caller sets `request` and `told` of the reply.
  RefusalReply explain(SessionId session, Bytes size, bool pinned = false) const;

 private:
  void on(const GpuFound& event);
  void on(const GpuChanged& event);
  void on(const GpuDrained& event);
  void on(const SessionCame& event);
  void on(const SessionGone& event);
  void on(const CapSet& event);
  void on(const Place& event);
  void on(const Unplace& event);
  void on(const RulesSet& event);
  void on(const TuningSet& event);
  void on(const CapacitySet& event);
  void on(const Looked& event);
  void on(const Suspend& event);
  void on(const GangOrdered& event);
  void on(const Surveyed& event);
  void on(const TimerFired& event);
  void on(const From<Attach>& event);
  void on(const From<Usage>& event);
  void on(const From<Want>& event);
  void on(const From<Idle>& event);
  void on(const From<GiveBack>& event);
  void on(const From<Ready>& event);
  void on(const From<Released>& event);
  void on(const From<MemoryQuery>& event);
  void on(const From<Deadlines>& event);

  Session* find(SessionId id);
  // Finds a session that has just sent a message, and notes that its process is not stopped.
  Session* find_reporting(SessionId id);
  void resume(Session& session);
  void set_terms(Tenant& tenant, const Limits& limits, const Claims& claims);
  void attach(Session& session, Gpu& gpu);
  void attach_returned(Session& session);
  void remove(Session& session);
  void succeed(const Session& old, Session& heir);
  void leave(const Tenant& tenant, Move::Leave leave = {});
  void leave_or_ask(const Tenant& tenant);
  void report_gang(const Tenant& tenant, const Residencies& at);
  void end_recovery();

  void find_domains();
  void advance_all();
  void pass_over(Nanoseconds standstill);
  void advance(const Domain& domain);
  void plan(const Domain& domain);
  void drop_members(const Domain& domain);
  bool must_leave(const Tenant& tenant);
  bool is_unresponsive(const Tenant& tenant);
  void carry_out(const Domain& domain, const Move& move);
  void move_memory(const Domain& domain);
  void open_ready(const Domain& domain);
  void poll_processes(const Domain& domain);

  using Viewer = MemoryBooks::Viewer;
  Viewer viewer_of(const Session& session) const;
  Viewer viewer_of(const Tenant& tenant, Bytes limit, const StepName& step, bool can_be_away) const;
  Snapshot::Session view_of(const Session& session) const;
  Snapshot::Tenant view_of(const Tenant& tenant) const;
  Snapshot::Gpu view_of(const Gpu& gpu) const;
  Sighting::Session sight_of(const Session& session) const;
  Sighting::Tenant sight_of(const Tenant& tenant) const;

  Tuning tuning_;
  Effects effects_;
  Model model_;
  std::map<TenantId, Placement> placements_;  // includes tenants without sessions
  Recovery recovery_;
  Nanoseconds next_advance_ = Nanoseconds::max();
  Presence presence_;
  Gangs gangs_{effects_};
  MemoryBooks memory_;
  TurnMachine turns_;
  Scheduler scheduler_;
  Overuse overuse_;
};

}  // namespace sharedgpu
