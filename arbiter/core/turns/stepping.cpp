// SPDX-License-Identifier: Apache-2.0
// Single submissions while a tenant drains. The tenant's processes may wait for each other on the GPU: a
// kernel of one process may wait for work that another process has not submitted before it drained. So the
// arbiter repeatedly allows each thread of the drained processes one submission, until all processes have
// drained at the same time. The pauses between these submissions grow, so that the submissions cost little
// time if no process waits. Processes on other nodes may wait, too. For them, the coordinator of the gang
// orders the submissions.
#include <algorithm>

#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {

bool TurnMachine::drains(const Session& session) const {
  return attached(&session) && !is_drained(sessions_[session].drain) && !presence_.frozen(session);
}

bool TurnMachine::still_drains(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [this](const Session* session) { return drains(*session); });
}

// Returns true if sessions of the tenant's job that still drain, if there are any, may wait on the GPU for a
// further submission of this session.
bool TurnMachine::may_block_peers(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  const SessionRow& its = sessions_[session];
  const auto* leaving = std::get_if<Leaving>(&phase(tenant));
  return leaving != nullptr && (its.has_run || !leaving->but_newcomers) && !resuming(tenant) &&
         attached(&session) && said_drained(its.drain) && its.wants &&
         (leases_.holds(tenant.id) || gangs_.others_drain(tenant)) && !presence_.frozen(session);
}

// Sets the pause before the next single submission. The pause is at least twice the time since a session was
// last allowed a single submission or has drained, so that this submission can help the other sessions. If
// this session was allowed no single submission, the pause is at least twice the longest such time of this
// drain. In this case the sessions perhaps do not wait for each other, but have long CUDA kernels, and a
// further submission would delay the end of the turn.
void TurnMachine::note_drained(const Session& session) {
  const Tenant& tenant = *session.tenant;
  Leaving& leaving = std::get<Leaving>(tenants_[tenant].phase);
  const bool stepping =
      std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* each) {
        return attached(each) && sessions_[*each].drain == Drain::submits_once;
      });
  const Nanoseconds took = stepping ? effects_.now() - leaving.stepped_at : Nanoseconds{};
  leaving.step_took = std::max(leaving.step_took, took);
  leaving.stepped_at = effects_.now();
  const Drain drain = sessions_[session].drain;
  const bool stepped = drain == Drain::submits_once || drain == Drain::drained_again;
  const Nanoseconds pause = 2 * (stepped ? took : leaving.step_took);
  leaving.step_at = std::max(leaving.step_at, effects_.now() + std::max(leaving.step_pause, pause));
}

// With `but_newcomers`, only sessions that have run before may submit. The caller sets `but_newcomers` while
// the daemon ends the tenant's processes: other tenants wait for these processes, but not for new ones.
void TurnMachine::submit_once(const Tenant& tenant, bool but_newcomers) {
  auto* leaving = std::get_if<Leaving>(&tenants_[tenant].phase);
  if (leaving == nullptr) return;
  leaving->but_newcomers = but_newcomers;
  if (!gangs_.owes_step(tenant)) {
    if (effects_.now() < leaving->step_at) return effects_.wake_at(leaving->step_at);
    if (!still_drains(tenant)) return;
  }
  gangs_.note_steps(tenant);
  std::vector<const Session*> blocked;
  for (const Session* session : tenant.sessions) {
    const SessionBook& book = memory_.of(*session);
    if (may_block_peers(*session) && book.resident_limit >= book.use.swappable) blocked.push_back(session);
  }
  if (blocked.empty()) return;
  for (const Session* session : tenant.sessions)
    if (sessions_[*session].drain == Drain::drained_again) sessions_[*session].drain = Drain::drained;
  for (const Session* session : blocked) {
    SessionRow& its = sessions_[*session];
    its.drain = Drain::submits_once;
    its.has_run = true;
    set_wants(*session, false);
    its.order = ++last_order_;
    grant_lease(*session);  // a session that has connected after the end of the turn has no lease
    effects_.send(
        *session,
        Step{.epoch = epoch(tenant), .allowed = memory_.of(*session).resident_limit, .order = its.order});
  }
  leaving->stepped_at = leaving->could_submit_at = effects_.now();
  leaving->step_pause += tuning_.step_pause / 64;
  leaving->step_at = effects_.now() + leaving->step_pause;
  effects_.advance_again();
}

}  // namespace sharedgpu
