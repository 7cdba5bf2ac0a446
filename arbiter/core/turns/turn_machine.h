// SPDX-License-Identifier: Apache-2.0
// The turn machine: moves tenants into and out of running sets, phase by phase, and records their leases.
//
// A lease begins when the gates open and ends when every session has drained. Each Restore has the epoch of
// the tenant's turn, and each Revoke and Step has its own number, so that late answers to earlier messages
// can be ignored. The turn machine makes no scheduling decision: it carries out Moves. Not thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "arbiter/core/memory/memory_books.h"
#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/lease_book.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/turns/gangs.h"
#include "arbiter/core/turns/phases.h"
#include "arbiter/core/turns/presence.h"

namespace sharedgpu {

// The state of the turn of a domain's running set.
struct TurnState {
  // The tenant for which the turn began; if it has left, another member of the running set. Null: the running
  // set is empty.
  const Tenant* leader = nullptr;
  Nanoseconds began{};
  bool begun = false;  // false while no tenant runs, or while the leader is still entering
};

// The contents of a session's lease page, except for its gate.
struct PageState {
  bool contended = false;       // other tenants wait for the GPU
  bool oversubscribed = false;  // a turn may have to end, see Scheduler::oversubscribed()
  Nanoseconds queue{};          // the backlog limit while oversubscribed; zero: the default
  Nanoseconds turn_ends{};      // zero: none
};

// Returns true if the tenant is told when its turn ends: an exclusive tenant with one process on one GPU and
// one node. If a tenant has several processes, no process knows whether the work of the other processes fits
// into the rest of the turn. A tenant that is not exclusive may exceed its turn without consequences.
inline bool can_yield(const Tenant& tenant) {
  return tenant.exclusive && tenant.sessions.size() == 1 && !tenant.gang;
}

// The step's lease on the session's GPU. The session must be attached.
inline LeaseKey lease_of(const Session& session) {
  return {.tenant = session.tenant->id, .gpu = session.gpu->uuid, .step = session.step};
}

class TurnMachine {
 public:
  TurnMachine(const Tuning& tuning, const Presence& presence, Gangs& gangs, MemoryBooks& memory,
              Effects& effects, LeaseBook leases, Epoch last_epoch, Nanoseconds now);

  // ---- coming and going ----

  void add(const Tenant& tenant);
  void add(const Session& session, bool wants);
  void add(const Gpu& gpu) { drained_at_.begin(gpu); }
  // Call for each open lease of the tenant in the ledger, before the tenant's sessions reconnect. `held_at`:
  // the last time at which the lease certainly was held.
  void recover(const Tenant& tenant, const LeaseKey& key, const OpenLease& lease, Nanoseconds held_at);
  void welcome(const Session& session, Backend backend);
  // Call when a session has attached to its GPU. If the session's step has an open lease on this GPU, this
  // shows that the lease is held.
  void confirm_lease(const Session& session) { leases_.confirm(lease_of(session)); }
  // Call when a new session has attached to its GPU. The session has no memory yet, so it shares its tenant's
  // lease at once.
  void attach(const Session& session);
  // Returns true if the attached session has not been allowed to submit or restore anything, and its tenant
  // is not in the running set.
  bool is_newcomer(const Session& session) const;
  // Opens the gate of a reconnected session before the session maps its lease page, so that its lease
  // continues without a pause.
  void keep_open(const Session& session) { set_gate(session, true); }
  // Call when a reconnected session has attached to its GPU.
  void confirm(const Session& session) { sync_leases(*session.tenant); }
  // Call for a reconnected session that may have work on the GPU: the session counts as working until it has
  // answered a Revoke.
  void mark_returned(const Session& session);
  void revoke_returned(const Session& session);
  // Call note_end() before a session is removed, and detach() afterwards. `lease`: the lease of the removed
  // session, which other sessions may still hold; nullopt: the session was not attached.
  void note_end(const Session& session);
  void detach(const Tenant& tenant, const std::optional<LeaseKey>& lease);
  // Ends the tenant's turn if all of its sessions have drained, and no other node of its job may need further
  // submissions of the tenant (may_finish()).
  void finish_leaving(const Tenant& tenant);
  // Returns true if a gang's tenant may leave without an order, to make room for jobs that run on this node
  // alone. This is the case if the gang is in a turn, its nodes are out of contact, the tenant is not
  // running, and no other job on several nodes is in a turn, or leaves its turn, on the tenant's GPUs. The
  // tenant then leaves as soon as it has drained.
  bool may_leave_unasked(const Tenant& tenant) const;
  void forget_leases(TenantId tenant) { leases_.forget(tenant); }
  // Ends those of the tenant's leases from the ledger whose sessions have not reconnected, or have ended.
  void end_lost_leases(const Tenant& tenant);
  void end_recovery(const Tenant& tenant) { tenants_[tenant].resuming = false; }

  // ---- moves ----

  struct Entry {
    bool leads = false;
    bool preempts = false;
    Nanoseconds elapsed{};
  };
  void enter(const Domain& domain, const Tenant& tenant, const Entry& entry);
  // Takes the tenant out of the running set. Returns false if the tenant was entering, and is out at once
  // because none of its sessions was sent a Restore.
  bool leave(const Tenant& tenant);
  bool may_open(const Tenant& tenant) const { return is_ready(tenant) && gangs_.may_open(tenant); }
  // Opens the tenant's gates. If a turn begins and memory was moved for it, returns the duration of the
  // handoff.
  std::optional<Nanoseconds> open(const Domain& domain, const Tenant& tenant);
  // Begins another turn of the same running set.
  void begin_anew(const Domain& domain);
  // `awaited`: true if a session of the entering tenant may restore all of its memory, and is not ready.
  // Returns the total time for which `awaited` has been true since the tenant entered.
  Nanoseconds await_ready(const Tenant& tenant, bool awaited);
  // Call if the arbiter did not run for `standstill`: await_ready() does not count this time.
  void pass_over(const Model& model, Nanoseconds standstill);
  // Ends the lease of a leaving tenant if its processes that have not drained are stopped, or do not answer
  // and have nothing on the GPU.
  void take_lease_of_absent(const Tenant& tenant);
  void lend_to_returned(const Tenant& tenant);
  void submit_once(const Tenant& tenant, bool but_newcomers);
  void send_restores(const std::vector<const Session*>& sessions);

  // ---- what sessions say ----

  // accepts() returns false if the message belongs to an earlier turn, or the session sent it before it had
  // received the last Revoke or Step.
  bool accepts(const Session& session, const Ready& ready) const;
  bool accepts(const Session& session, const Released& drained) const;
  void on_drained(const Session& session, bool wants);
  void on_resumed(const Session& session);  // The session's process has resumed from a stop.
  void set_wants(const Session& session, bool wants);

  // ---- pages ----

  // Returns the sessions whose `contended` value changes.
  std::vector<const Session*> set_contended(const Domain& domain, bool contended);
  void set_oversubscribed(const Domain& domain, bool oversubscribed, Nanoseconds queue);
  // Writes the time at which the turn ends into the lease page of each running tenant for which can_yield()
  // is true. Zero: the turn has no end.
  void set_turn_ends(const Domain& domain, Nanoseconds at);

  // ---- read only ----

  const TenantPhase& phase(const Tenant& tenant) const { return tenants_[tenant].phase; }
  Phase phase_of(const Tenant& tenant) const { return sharedgpu::phase_of(phase(tenant)); }
  bool in_set(const Tenant& tenant) const;
  bool leads(const Tenant& tenant) const;
  bool revoked(const Tenant& tenant) const;
  // Returns true if the tenant is entering and nothing on this node keeps its gates closed.
  bool is_ready(const Tenant& tenant) const;
  // Returns true if all of the tenant's sessions have reported that they have drained, or its lease was
  // revoked without an answer.
  bool has_drained(const Tenant& tenant) const;
  // Returns true if a process of the tenant is not stopped and has not drained.
  bool still_drains(const Tenant& tenant) const;
  bool resuming(const Tenant& tenant) const { return tenants_[tenant].resuming; }
  Epoch epoch(const Tenant& tenant) const { return tenants_[tenant].epoch; }
  Nanoseconds turn_began(const Tenant& tenant) const;
  Nanoseconds gates_closed(const Tenant& tenant) const { return tenants_[tenant].gates_closed; }
  Nanoseconds last_ran(const Tenant& tenant) const { return tenants_[tenant].last_ran; }
  // The duration of the tenant's last drain if its processes waited for each other, else zero.
  Nanoseconds last_drain(const Tenant& tenant) const { return tenants_[tenant].last_drain; }

  bool gate_open(const Session& session) const { return sessions_[session].gate_open; }
  bool wants(const Session& session) const { return sessions_[session].wants; }
  bool wants(const Tenant& tenant) const { return tenants_[tenant].wanting > 0; }
  Epoch epoch(const Session& session) const { return sessions_[session].epoch; }
  std::uint64_t order(const Session& session) const { return sessions_[session].order; }
  bool returned(const Session& session) const { return sessions_[session].unknown_since.has_value(); }
  bool drain_confirmed(const Session& session) const { return is_drained(sessions_[session].drain); }
  const PageState& page(const Session& session) const { return sessions_[session].page; }
  // Returns true if the session's process is to be polled: an answer of the session is awaited, the tenant
  // runs while others wait, or the tenant is stopped or about to be (Presence::absent()).
  bool owes_answer(const Session& session) const;

  TurnState turn_of(const Domain& domain) const;
  Residency residency(const Session& session) const;
  // The residencies of all sessions in the domain, or in the whole model. The references are valid until the
  // state changes or until the next call.
  const Residencies& residencies(const Domain& domain);
  const Residencies& residencies(const Model& model);
  const LeaseBook& leases() const { return leases_; }

 private:
  struct TenantRow {
    TenantPhase phase = Out{};
    Epoch epoch;              // epoch of the tenant's last turn, or of its first turn if it has had none
    bool epoch_used = false;  // the tenant has entered, or was sent a Revoke, since it has this epoch
    bool resuming = false;  // the lease is from the ledger; sessions of the tenant may be about to reconnect
    unsigned wanting = 0;   // number of sessions that want the GPU
    Nanoseconds gates_closed{};
    Nanoseconds last_ran{};  // when the tenant's last lease ended
    Nanoseconds last_drain{};
  };
  struct SessionRow {
    bool gate_open = false;
    // The session's gate has been open, or may have been open before the session reconnected; or the session
    // was allowed a single submission.
    bool has_run = false;
    bool wants = false;
    Drain drain = Drain::draining;
    Epoch epoch;              // the last epoch that was sent to the session
    std::uint64_t order = 0;  // number of the last Revoke or Step
    // when the session reconnected, if it may be at work; empty again when it has drained or is given up
    std::optional<Nanoseconds> unknown_since;
    PageState page;
  };

  void set_gate(const Session& session, bool open);
  void begin_to_leave(const Tenant& tenant);
  void yield_lead(const Tenant& tenant);
  void set_turn_began(const Tenant& tenant, Nanoseconds began);
  void revoke(const Session& session);
  std::optional<Nanoseconds> begin_turn(const Domain& domain, const Tenant& leader, const Entering& entry);
  void end_turn(const Tenant& tenant);
  bool give_up_silent(const Tenant& tenant, const Leaving& leaving);
  bool waits_for_drain(const Tenant& tenant) const;
  bool drains(const Session& session) const;
  bool may_finish(const Tenant& tenant) const;
  bool shares_with_gang(const Tenant& tenant) const;
  bool all_said_drained(const Tenant& tenant) const;
  Residency common_residency(const Tenant& tenant) const;
  Residency residency(const Session& session, const Residency& common) const;

  // stepping.cpp
  void note_drained(const Session& session);
  bool may_block_peers(const Session& session) const;

  // leases.cpp
  void sync_leases(const Tenant& tenant);
  void grant_lease(const Session& session);
  void end_leases(const Tenant& tenant);
  template <class Ends>
  void release_leases(const Tenant& tenant, Ends ends);

  const Tuning& tuning_;
  const Presence& presence_;
  Gangs& gangs_;
  MemoryBooks& memory_;
  Effects& effects_;
  LeaseBook leases_;
  Epoch last_epoch_;
  std::uint64_t last_order_;  // number of the last Revoke or Step; begins above those of earlier arbiters
  Table<Tenant, TenantRow> tenants_;
  Table<Session, SessionRow> sessions_;
  Table<Gpu, Nanoseconds> drained_at_;  // when a tenant last ended a turn on the GPU, or a
                                        // session that had not drained last ended there
  Residencies residencies_;
};

}  // namespace sharedgpu
