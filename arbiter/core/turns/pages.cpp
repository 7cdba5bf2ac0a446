// SPDX-License-Identifier: Apache-2.0
// The contents of lease pages except for the gate; and the residencies, from which the memory accounting
// reads the state of turns.
#include <algorithm>
#include <utility>

#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {
namespace {

// The end of a turn is computed from accounts at each event. Changes below this value are rounding errors,
// and are not written to lease pages.
constexpr std::chrono::microseconds kEndNews{100};

}  // namespace

std::vector<const Session*> TurnMachine::set_contended(const Domain& domain, bool contended) {
  std::vector<const Session*> changed;
  for (const Tenant* tenant : domain.tenants)
    for (const Session* session : tenant->sessions) {
      SessionRow& its = sessions_[*session];
      if (!attached(session) || std::exchange(its.page.contended, contended) == contended) continue;
      changed.push_back(session);
      effects_.put(SetContended{.session = session->id, .contended = contended});
      if (contended && its.gate_open) effects_.send(*session, OthersWait{});
    }
  return changed;
}

void TurnMachine::set_oversubscribed(const Domain& domain, bool oversubscribed, Nanoseconds queue) {
  for (const Tenant* tenant : domain.tenants)
    for (const Session* session : tenant->sessions) {
      PageState& page = sessions_[*session].page;
      if (!attached(session) || (page.oversubscribed == oversubscribed && page.queue == queue)) continue;
      page.oversubscribed = oversubscribed;
      page.queue = queue;
      effects_.put(
          SetOversubscribed{.session = session->id, .oversubscribed = oversubscribed, .queue = queue});
    }
}

void TurnMachine::set_turn_ends(const Domain& domain, Nanoseconds at) {
  for (const Tenant* tenant : domain.tenants) {
    const bool knows = phase_of(*tenant) == Phase::running && can_yield(*tenant);
    const Nanoseconds end = knows ? at : Nanoseconds{};
    for (const Session* session : tenant->sessions) {
      Nanoseconds& said = sessions_[*session].page.turn_ends;
      const bool same =
          (end == Nanoseconds{}) == (said == Nanoseconds{}) && std::chrono::abs(end - said) < kEndNews;
      if (!attached(session) || same) continue;
      said = end;
      effects_.put(SetTurnEnds{.session = session->id, .at = end});
    }
  }
}

// ---- read only ----

bool TurnMachine::in_set(const Tenant& tenant) const {
  const Phase phase = phase_of(tenant);
  return phase == Phase::entering || phase == Phase::running;
}

bool TurnMachine::leads(const Tenant& tenant) const {
  const auto* entering = std::get_if<Entering>(&phase(tenant));
  const auto* running = std::get_if<Running>(&phase(tenant));
  return (entering != nullptr && entering->leads) || (running != nullptr && running->leads);
}

bool TurnMachine::revoked(const Tenant& tenant) const {
  const auto* leaving = std::get_if<Leaving>(&phase(tenant));
  return leaving != nullptr && leaving->revoked;
}

Nanoseconds TurnMachine::turn_began(const Tenant& tenant) const {
  if (const auto* entering = std::get_if<Entering>(&phase(tenant))) return entering->turn_began;
  if (const auto* running = std::get_if<Running>(&phase(tenant))) return running->turn_began;
  return {};
}

TurnState TurnMachine::turn_of(const Domain& domain) const {
  TurnState turn;
  bool leader_enters = false;
  for (const Tenant* tenant : domain.tenants) {
    if (!in_set(*tenant)) continue;
    turn.began = std::max(turn.began, turn_began(*tenant));
    const bool runs = phase_of(*tenant) == Phase::running;
    if (runs) turn.begun = true;
    if (leads(*tenant) || turn.leader == nullptr) turn.leader = tenant;
    if (!runs && leads(*tenant)) leader_enters = true;
  }
  turn.begun = turn.begun && !leader_enters;
  return turn;
}

bool TurnMachine::owes_answer(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  const SessionBook& book = memory_.of(session);
  if (!attached(&session)) return false;
  if (presence_.absent(tenant)) return true;
  switch (phase_of(tenant)) {
    case Phase::running:
      return sessions_[session].page.contended;
    case Phase::entering:
      return book.restoring && !book.ready;
    case Phase::leaving:
      return !is_drained(sessions_[session].drain) || book.resident_limit < book.use.resident;
    case Phase::out:
      break;
  }
  return book.resident_limit < book.use.resident;
}

// The part of a residency that is the same for all sessions of a tenant.
Residency TurnMachine::common_residency(const Tenant& tenant) const {
  Residency at;
  at.phase = phase_of(tenant);
  at.leads = leads(tenant);
  at.tenant_wants = wants(tenant);
  at.suspending = presence_.suspending(tenant);
  at.gates_closed = gates_closed(tenant);
  at.last_ran = last_ran(tenant);
  if (const auto* leaving = std::get_if<Leaving>(&phase(tenant))) {
    at.revoked = leaving->revoked;
    at.peers_grow = gangs_.others_grow(tenant);
    at.gang_since = gangs_.since(tenant);
    at.peers_drain = still_drains(tenant) || gangs_.others_drain(tenant);
  }
  return at;
}

Residency TurnMachine::residency(const Session& session) const {
  return residency(session, common_residency(*session.tenant));
}

Residency TurnMachine::residency(const Session& session, const Residency& common) const {
  const Tenant& tenant = *session.tenant;
  const SessionRow& its = sessions_[session];
  Residency at = common;
  // `at.drained` means that the session's memory may be evicted. A drained session keeps its memory as long
  // as processes on other nodes may need a further submission from it.
  at.drained =
      at.phase == Phase::out || (at.phase == Phase::leaving && is_drained(its.drain) && may_finish(tenant));
  if (attached(&session))
    at.at_work = at.phase == Phase::running || (at.phase == Phase::leaving && !at.drained &&
                                                (its.unknown_since || leases_.holds(tenant.id)));
  at.submits_once = at.phase == Phase::leaving && its.drain == Drain::submits_once;
  at.wants = its.wants;
  at.comes_late = gangs_.may_have_turn(tenant) && !its.has_run && at.phase != Phase::running;
  at.frozen = presence_.frozen(session);
  const auto* leaving = std::get_if<Leaving>(&phase(tenant));
  if (at.peers_drain && may_block_peers(session)) at.blocks_peers_from = leaving->step_at;
  return at;
}

const Residencies& TurnMachine::residencies(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) {
    const Residency common = common_residency(*tenant);
    for (const Session* session : tenant->sessions)
      residencies_.begin(*session) = residency(*session, common);
  }
  return residencies_;
}

const Residencies& TurnMachine::residencies(const Model& model) {
  for (const auto& [id, tenant] : model.tenants()) {
    const Residency common = common_residency(tenant);
    for (const Session* session : tenant.sessions) residencies_.begin(*session) = residency(*session, common);
  }
  return residencies_;
}

}  // namespace sharedgpu
