// SPDX-License-Identifier: Apache-2.0
// Moves tenants into running sets and out of them.
#include "arbiter/core/turns/turn_machine.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {

TurnMachine::TurnMachine(const Tuning& tuning, const Presence& presence, Gangs& gangs, MemoryBooks& memory,
                         Effects& effects, LeaseBook leases, Epoch last_epoch, Nanoseconds now)
    : tuning_(tuning),
      presence_(presence),
      gangs_(gangs),
      memory_(memory),
      effects_(effects),
      leases_(std::move(leases)),
      last_epoch_(last_epoch),
      last_order_(static_cast<std::uint64_t>(now.count())) {}

// ---- coming and going ----

void TurnMachine::add(const Tenant& tenant) { tenants_.begin(tenant).epoch = Epoch{++last_epoch_.value}; }

void TurnMachine::add(const Session& session, bool wants) {
  SessionRow& its = sessions_.begin(session);
  its.epoch = epoch(*session.tenant);
  set_wants(session, wants);
}

void TurnMachine::recover(const Tenant& tenant, const LeaseKey& key, const OpenLease& lease,
                          Nanoseconds held_at) {
  leases_.doubt(key, held_at);
  TenantRow& its = tenants_.begin(tenant);
  its.phase = Running{.opened = lease.since, .turn_began = lease.since};
  its.resuming = true;
  its.epoch = lease.epoch;
  last_epoch_ = std::max(last_epoch_, lease.epoch);
}

void TurnMachine::welcome(const Session& session, Backend backend) {
  effects_.send(session, Welcome{.session = session.id,
                                 .tenant = session.tenant->id,
                                 .epoch = epoch(*session.tenant),
                                 .backend = backend});
}

void TurnMachine::attach(const Session& session) {
  SessionRow& its = sessions_[session];
  its.drain = Drain::drained;
  memory_.set_ready(session, its.epoch == epoch(*session.tenant));
  if (phase_of(*session.tenant) != Phase::running) return;
  set_gate(session, true);
  sync_leases(*session.tenant);
}

bool TurnMachine::is_newcomer(const Session& session) const {
  const SessionRow& its = sessions_[session];
  return !its.has_run && is_drained(its.drain) && !memory_.of(session).restoring && !in_set(*session.tenant);
}

void TurnMachine::mark_returned(const Session& session) {
  SessionRow& its = sessions_[session];
  its.drain = Drain::draining;
  its.unknown_since = effects_.now();
  its.has_run = true;
}

void TurnMachine::revoke_returned(const Session& session) {
  const Tenant& tenant = *session.tenant;
  if (phase_of(tenant) == Phase::out) {
    for (const Session* other : tenant.sessions)
      sessions_[*other].drain = other == &session ? Drain::draining : Drain::drained;
    begin_to_leave(tenant);
  }
  revoke(session);
}

void TurnMachine::note_end(const Session& session) {
  const bool drains = phase_of(*session.tenant) == Phase::leaving && !is_drained(sessions_[session].drain);
  if (attached(&session) && drains) drained_at_[*session.gpu] = effects_.now();
  set_wants(session, false);
}

// ---- moves ----

void TurnMachine::set_gate(const Session& session, bool open) {
  SessionRow& its = sessions_[session];
  its.has_run = its.has_run || open;
  if (std::exchange(its.gate_open, open) == open) return;
  effects_.put(SetGate{.session = session.id, .open = open});
}

void TurnMachine::enter(const Domain& domain, const Tenant& tenant, const Entry& entry) {
  effects_.advance_again();
  const TurnState turn = turn_of(domain);
  if (entry.leads)
    for (const Tenant* other : domain.tenants) yield_lead(*other);
  TenantRow& its = tenants_[tenant];
  const bool begins = entry.leads || turn.began == Nanoseconds{};
  its.phase = Entering{.since = effects_.now(),
                       .turn_began = begins ? effects_.now() : turn.began,
                       .elapsed = entry.elapsed,
                       .leads = entry.leads,
                       .preempts = entry.preempts};
  // A Restore message tells a session its epoch and the memory that it may have on the GPU. In its first
  // turn, a tenant without swappable memory needs no Restore: Welcome has told its sessions the first epoch.
  const auto is_fresh = [&](const Session* session) {
    const SessionBook& book = memory_.of(*session);
    return !attached(session) ||
           (sessions_[*session].epoch == its.epoch && !book.evicting && book.use.swappable == Bytes{});
  };
  const bool all_fresh =
      !its.epoch_used && std::all_of(tenant.sessions.begin(), tenant.sessions.end(), is_fresh);
  if (!all_fresh) its.epoch = Epoch{++last_epoch_.value};
  its.epoch_used = true;
  for (const Session* session : tenant.sessions) memory_.begin_restore(*session, all_fresh);
}

Nanoseconds TurnMachine::await_ready(const Tenant& tenant, bool awaited) {
  auto& its = std::get<Entering>(tenants_[tenant].phase);
  if (its.awaited_since) its.awaited += effects_.now() - *its.awaited_since;
  its.awaited_since = awaited ? std::optional(effects_.now()) : std::nullopt;
  return its.awaited;
}

void TurnMachine::pass_over(const Model& model, Nanoseconds standstill) {
  for (const auto& [id, tenant] : model.tenants()) {
    auto* entering = std::get_if<Entering>(&tenants_[tenant].phase);
    if (entering != nullptr && entering->awaited_since) *entering->awaited_since += standstill;
  }
}

void TurnMachine::yield_lead(const Tenant& tenant) {
  TenantPhase& phase = tenants_[tenant].phase;
  if (auto* entering = std::get_if<Entering>(&phase)) entering->leads = false;
  if (auto* running = std::get_if<Running>(&phase)) running->leads = false;
}

void TurnMachine::send_restores(const std::vector<const Session*>& sessions) {
  for (const Session* session : sessions) {
    SessionRow& its = sessions_[*session];
    its.epoch = epoch(*session->tenant);
    effects_.send(*session, Restore{.epoch = its.epoch, .allowed = memory_.of(*session).resident_limit});
  }
}

bool TurnMachine::is_ready(const Tenant& tenant) const {
  if (phase_of(tenant) != Phase::entering) return false;
  const auto is_ready = [this](const Session* session) {
    return !attached(session) || memory_.of(*session).ready;
  };
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), is_ready) && !waits_for_drain(tenant);
}

// An exclusive tenant has the GPU alone. So its gates open only after leaving tenants have drained, and the
// gates of the next tenant open only after the exclusive tenant has drained. The wait has a timeout.
bool TurnMachine::waits_for_drain(const Tenant& tenant) const {
  const auto is_in_the_way = [&](const Session* other) {
    const Tenant& its = *other->tenant;
    return (tenant.exclusive || its.exclusive) && phase_of(its) == Phase::leaving &&
           !is_drained(sessions_[*other].drain) && leases_.holds(its.id) &&
           effects_.now() - gates_closed(its) < tuning_.patience;
  };
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return attached(session) &&
           std::any_of(session->gpu->sessions.begin(), session->gpu->sessions.end(), is_in_the_way);
  });
}

std::optional<Nanoseconds> TurnMachine::open(const Domain& domain, const Tenant& tenant) {
  effects_.advance_again();
  TenantRow& its = tenants_[tenant];
  const Entering entry = std::get<Entering>(its.phase);
  its.phase = Running{.opened = effects_.now(), .turn_began = entry.turn_began, .leads = entry.leads};
  const auto handoff = entry.leads ? begin_turn(domain, tenant, entry) : std::nullopt;
  for (const Session* session : tenant.sessions) {
    set_wants(*session, false);
    sessions_[*session].drain = Drain::draining;
    memory_.open(*session);
    if (attached(session)) set_gate(*session, true);
  }
  sync_leases(tenant);
  return handoff;
}

// The leader of a turn is the tenant for which the turn is begun. The turn begins when the leader's gates
// open. If an earlier turn of the leader was preempted, the new turn is the rest of that turn. If the leader
// preempts others, the members that keep running stay in their earlier turn.
std::optional<Nanoseconds> TurnMachine::begin_turn(const Domain& domain, const Tenant& leader,
                                                   const Entering& entry) {
  for (const Tenant* member : domain.tenants)
    if (in_set(*member) && (!entry.preempts || member == &leader))
      set_turn_began(*member, effects_.now() - entry.elapsed);
  // The handoff begins when the leaving tenants have drained, or when the leader was chosen, whichever is
  // later.
  Nanoseconds since = entry.since;
  bool moved = false;
  for (const Session* session : leader.sessions) {
    if (!attached(session)) continue;
    since = std::max(since, drained_at_[*session->gpu]);
    moved = moved || memory_.of(*session).restoring;
  }
  if (!moved) return std::nullopt;
  return std::max<Nanoseconds>(effects_.now() - since, std::chrono::microseconds(1));
}

void TurnMachine::set_turn_began(const Tenant& tenant, Nanoseconds began) {
  TenantPhase& phase = tenants_[tenant].phase;
  if (auto* entering = std::get_if<Entering>(&phase)) entering->turn_began = began;
  if (auto* running = std::get_if<Running>(&phase)) running->turn_began = began;
  for (const Session* session : tenant.sessions) memory_.begin_turn(*session);
}

void TurnMachine::begin_anew(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants)
    if (in_set(*tenant)) set_turn_began(*tenant, effects_.now());
}

bool TurnMachine::leave(const Tenant& tenant) {
  effects_.advance_again();
  const auto was_told = [this](const Session* session) { return memory_.of(*session).restoring; };
  if (phase_of(tenant) == Phase::entering &&
      std::none_of(tenant.sessions.begin(), tenant.sessions.end(), was_told)) {
    tenants_[tenant].phase = Out{};
    for (const Session* session : tenant.sessions) memory_.hold_at_resident(*session);
    return false;
  }
  begin_to_leave(tenant);
  for (const Session* session : tenant.sessions) {
    set_gate(*session, false);
    sessions_[*session].drain = attached(session) ? Drain::draining : Drain::drained;
    if (attached(session)) revoke(*session);
  }
  effects_.wake_at(effects_.now() + tuning_.patience);
  finish_leaving(tenant);
  return true;
}

void TurnMachine::begin_to_leave(const Tenant& tenant) {
  tenants_[tenant].gates_closed = effects_.now();
  tenants_[tenant].phase =
      Leaving{.step_at = effects_.now() + tuning_.step_after, .step_pause = tuning_.step_pause};
}

void TurnMachine::revoke(const Session& session) {
  SessionRow& its = sessions_[session];
  memory_.note_progress(session);
  its.epoch = epoch(*session.tenant);
  tenants_[*session.tenant].epoch_used = true;  // after a Revoke, the tenant needs a Restore to run again
  its.order = ++last_order_;
  effects_.send(session, Revoke{.epoch = its.epoch, .order = its.order});
}

void TurnMachine::finish_leaving(const Tenant& tenant) {
  if (phase_of(tenant) != Phase::leaving) return;
  if (resuming(tenant)) return;  // sessions that have not reconnected may hold the lease
  if (!all_said_drained(tenant) || !may_finish(tenant)) return;
  end_turn(tenant);
  tenants_[tenant].phase = Out{};
  for (const Session* session : tenant.sessions) memory_.hold_at_resident(*session);
}

// Returns true if the tenant may be out as soon as its sessions have drained. This includes a gang's tenant
// whose gates on this node have not opened in this turn, if its further submissions could not help another
// node. Other nodes do not wait for such a tenant, and it would only keep memory that another gang may need.
bool TurnMachine::may_finish(const Tenant& tenant) const {
  if (gangs_.may_finish(tenant) || may_leave_unasked(tenant)) return true;
  return !leases_.holds(tenant.id) && (gangs_.lacks_place(tenant) || !memory_.complete(tenant));
}

// While the nodes of a gang are out of contact, tenants that run on this node alone need not wait for the
// gang. These tenants depend on no other node, so the gang can return to the running set later. Returns false
// if another job on several nodes has a session on one of the tenant's GPUs and is not out. That job could
// grow, and then the gang could not return.
bool TurnMachine::may_leave_unasked(const Tenant& tenant) const {
  return gangs_.keeps_place(tenant) && phase_of(tenant) != Phase::running && !shares_with_gang(tenant);
}

bool TurnMachine::shares_with_gang(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return attached(session) && std::any_of(session->gpu->sessions.begin(), session->gpu->sessions.end(),
                                            [&](const Session* other) {
                                              const Tenant& its = *other->tenant;
                                              return &its != &tenant && its.job != 0 &&
                                                     phase_of(its) != Phase::out;
                                            });
  });
}

bool TurnMachine::all_said_drained(const Tenant& tenant) const {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    return !attached(session) || said_drained(sessions_[*session].drain);
  });
}

bool TurnMachine::has_drained(const Tenant& tenant) const {
  const auto* leaving = std::get_if<Leaving>(&phase(tenant));
  if (leaving == nullptr) return phase_of(tenant) == Phase::out;
  return leaving->revoked || (all_said_drained(tenant) && !resuming(tenant));
}

void TurnMachine::end_turn(const Tenant& tenant) {
  if (!leases_.holds(tenant.id)) return;
  for (const Session* session : tenant.sessions)
    if (attached(session)) drained_at_[*session->gpu] = effects_.now();
  end_leases(tenant);
  const auto submitted_once = [this](const Session* session) {
    const Drain drain = sessions_[*session].drain;
    return drain == Drain::submits_once || drain == Drain::drained_again;
  };
  const bool waited_for_peers = std::any_of(tenant.sessions.begin(), tenant.sessions.end(), submitted_once);
  TenantRow& its = tenants_[tenant];
  its.last_drain = waited_for_peers ? effects_.now() - its.gates_closed : Nanoseconds{};
  its.last_ran = effects_.now();
}

// A stopped process sends nothing, and no other process can move its memory. So the memory of a stopped
// process stays on the GPU, and other tenants run in the remaining memory. When the process resumes, its
// tenant holds the lease again until the process has drained. A thread that had passed the gate before the
// stop may submit once more, which costs other tenants only time.
//
// A session that has been given up has nothing on the GPU. Its tenant gets no further turn before this
// session has answered.
void TurnMachine::take_lease_of_absent(const Tenant& tenant) {
  auto* leaving = std::get_if<Leaving>(&tenants_[tenant].phase);
  if (leaving == nullptr || resuming(tenant)) return;
  const bool silent = give_up_silent(tenant, *leaving);
  if (!leases_.holds(tenant.id) || still_drains(tenant) || all_said_drained(tenant)) return;
  const Nanoseconds due = std::max(gates_closed(tenant), leaving->could_submit_at) + tuning_.stop_grace;
  effects_.wake_at(due);
  if (effects_.now() < due) return;
  end_turn(tenant);
  if (std::exchange(leaving->revoked, true)) return;
  effects_.note(tenant, silent ? "does not answer, and has nothing on the GPU; its lease goes to others"
                               : "is stopped; its lease goes to others, and its memory stays on the GPU");
}

// Gives up sessions that have nothing on the GPU and have not answered in time. Returns true if a session of
// the tenant is given up.
bool TurnMachine::give_up_silent(const Tenant& tenant, const Leaving& leaving) {
  if (!tuning_.overuse) return false;
  const Nanoseconds due = std::max(gates_closed(tenant), leaving.could_submit_at) + tuning_.overuse->silence;
  bool any = false;
  for (const Session* session : tenant.sessions) {
    SessionRow& its = sessions_[*session];
    if (drains(*session) && memory_.has_nothing(*session)) {
      effects_.wake_at(due);
      if (effects_.now() < due) continue;
      its.drain = Drain::given_up;
      its.unknown_since.reset();
      memory_.on_drained(*session);
    }
    any = any || its.drain == Drain::given_up;
  }
  return any;
}

// Gives the lease back to a leaving tenant if one of its sessions has reconnected, has not drained and is not
// stopped. Such a session is at work, so the tenant holds the lease until this session has drained.
void TurnMachine::lend_to_returned(const Tenant& tenant) {
  if (phase_of(tenant) != Phase::leaving) return;
  for (const Session* session : tenant.sessions) {
    const auto& since = sessions_[*session].unknown_since;
    if (!since || presence_.frozen(*session)) continue;
    const Nanoseconds due =
        *since + tuning_.look + tuning_.step_after;  // by this time, the process has been polled
    effects_.wake_at(due);
    if (effects_.now() >= due) grant_lease(*session);
  }
}

// ---- what sessions say ----

bool TurnMachine::accepts(const Session& session, const Ready& ready) const {
  return ready.epoch == epoch(*session.tenant) && phase_of(*session.tenant) == Phase::entering;
}

bool TurnMachine::accepts(const Session& session, const Released& drained) const {
  return drained.epoch == epoch(*session.tenant) && drained.order == order(session) &&
         phase_of(*session.tenant) == Phase::leaving;
}

void TurnMachine::on_drained(const Session& session, bool wants) {
  SessionRow& its = sessions_[session];
  note_drained(session);
  const bool again = its.drain == Drain::submits_once || its.drain == Drain::drained_again;
  its.drain = again ? Drain::drained_again : Drain::drained;
  its.unknown_since.reset();
  set_wants(session, its.wants || wants);
  memory_.on_drained(session);
}

void TurnMachine::set_wants(const Session& session, bool wants) {
  if (std::exchange(sessions_[session].wants, wants) != wants)
    tenants_[*session.tenant].wanting += wants ? 1 : -1u;
}

void TurnMachine::on_resumed(const Session& session) {
  auto* leaving = std::get_if<Leaving>(&tenants_[*session.tenant].phase);
  if (leaving == nullptr || !leaving->revoked || is_drained(sessions_[session].drain)) return;
  leaving->could_submit_at = effects_.now();
  leaving->step_at = effects_.now() + tuning_.step_after;
  grant_lease(session);
}

}  // namespace sharedgpu
