// SPDX-License-Identifier: Apache-2.0
// The way of a tenant into the running set and out of it.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

// For how long all its sessions have had nothing to do, as they told.
Nanoseconds idle_time(const Tenant& tenant) {
  Nanoseconds least = Nanoseconds::max();
  for (const Session* session : tenant.sessions)
    if (on_gpu(session)) least = std::min(least, session->idle);
  return least == Nanoseconds::max() ? Nanoseconds{} : least;
}

}  // namespace

void Core::enter(Domain& domain, Tenant& tenant, bool leads) {
  Turn turn = turn_of(domain);
  if (leads)
    for (Tenant* other : domain.tenants) other->leads = false;
  tenant.leads = leads;
  moved_ = true;
  tenant.phase = Phase::entering;
  tenant.entered = now_;
  tenant.waited = waited(tenant);
  tenant.turn_began = leads || turn.began == Nanoseconds{} ? now_ : turn.began;
  tenant.interrupts = tenant.outgrown = tenant.idled = false;
  // A tenant that never had memory needs no Restore: its first epoch came with Welcome.
  auto fresh = [&](const Session* session) {
    return !on_gpu(session) ||
           (session->epoch == tenant.epoch && !session->evicting && session->use.swappable == Bytes{});
  };
  bool all_fresh = !tenant.epoch_used && std::all_of(tenant.sessions.begin(), tenant.sessions.end(), fresh);
  if (!all_fresh) tenant.epoch = Epoch{++last_epoch_.value};
  tenant.epoch_used = true;
  for (Session* session : tenant.sessions) {
    session->ready = all_fresh;
    session->asked = session->told_all = false;
    session->told_again = false;
    session->told_all_at = {};
    session->under_way = {};
    session->told_allowed = {};
    session->stuck_until = {};
    session->peak = session->use.footprint();
  }
}

void Core::open_ready(Domain& domain) {
  for (Tenant* tenant : domain.tenants) {
    if (tenant->phase != Phase::entering) continue;
    auto ready = [](const Session* session) { return !on_gpu(session) || session->ready; };
    if (!std::all_of(tenant->sessions.begin(), tenant->sessions.end(), ready)) continue;
    if (!waits_for_drain(*tenant)) open(domain, *tenant);
  }
}

// Whose time is ruled has the GPU alone: not beside what others have still to do there, unless that takes for
// ever.
bool Core::waits_for_drain(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    if (!on_gpu(session)) return false;
    const std::vector<Session*>& here = session->gpu->sessions;
    return std::any_of(here.begin(), here.end(), [&](const Session* other) {
      const Tenant& its = *other->tenant;
      return (tenant.timed || its.timed) && its.phase == Phase::leaving && !other->released &&
             leases_.holds(its.id) && now_ - its.left < tuning_.patience;
    });
  });
}

void Core::open(Domain& domain, Tenant& tenant) {
  moved_ = true;
  tenant.phase = Phase::running;
  tenant.opened = tenant.busy_since = now_;
  if (tenant.leads) begin_turn(domain, tenant);
  tenant.interrupted = false;
  tenant.had = {};
  for (Session* session : tenant.sessions) {
    session->wants = session->stepped = false;
    session->host_short = {};
    session->idle = {};
    session->surge.goes_on(now_);
    if (!on_gpu(session)) continue;
    session->allowed = std::min(session->allowed, session->use.swappable);
    set_gate(*session, true);
  }
  sync_leases(tenant);
}

// The turn begins as its leader's gates open. One that was interrupted goes on; and whoever goes on running
// beside an interruption does so in the turn that was.
void Core::begin_turn(Domain& domain, Tenant& leader) {
  for (Tenant* member : domain.tenants) {
    if (!member->in_set() || (leader.interrupts && member != &leader)) continue;
    member->turn_began = now_ - leader.had;
    for (Session* session : member->sessions) session->peak = session->use.footprint();
  }
  // What counts is the time in which those that made room have done their last work, and it none yet.
  Nanoseconds since = leader.entered;
  bool moved = false;
  for (const Session* session : leader.sessions) {
    if (!on_gpu(session)) continue;
    since = std::max(since, session->gpu->drained);
    moved = moved || session->asked;
  }
  if (!moved) return;
  const Nanoseconds took = std::max<Nanoseconds>(now_ - since, std::chrono::microseconds(1));
  // For the first one those that left may have had to take and pin host memory, which the next ones find
  // there: one that was quicker stands for what is to come.
  Nanoseconds& mean = leader.handoff;
  const bool first = mean == Nanoseconds{};
  if (first || (leader.handoff_is_first && took < mean))
    mean = took;
  else
    mean = (3 * mean + took) / 4;
  leader.handoff_is_first = first;
  set_turn_length(domain);
}

// For how long the tenant, which runs, has had the GPU, where others wait: nobody tells of its idleness
// before.
Nanoseconds Core::busy_time(const Tenant& tenant) const {
  const bool watched = std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                                   [](const Session* session) { return session->contended; });
  return watched ? now_ - tenant.busy_since : Nanoseconds{};
}

void Core::leave(Tenant& tenant) {
  if (std::exchange(tenant.comes_home, false)) tenant.brought_home = now_;
  moved_ = true;
  const bool ran = tenant.phase == Phase::running;
  // It may have been idle for longer than others have waited.
  if (ran) tenant.used += std::max(Nanoseconds{}, busy_time(tenant) - idle_time(tenant));
  auto asked = [](const Session* session) { return session->asked; };
  tenant.leads = tenant.interrupts = tenant.interrupted = false;
  tenant.had = {};
  if (!ran && std::none_of(tenant.sessions.begin(), tenant.sessions.end(), asked)) {
    tenant.phase = Phase::out;  // nobody was told of the turn that is not to be
    for (Session* session : tenant.sessions)
      session->allowed = std::min(session->allowed, session->use.resident);
    return;
  }
  begin_to_leave(tenant);
  for (Session* session : tenant.sessions) {
    set_gate(*session, false);
    if (on_gpu(session) && session->idle == Nanoseconds{})
      session->surge.waits(now_, minus(session->gpu->usable, session->use.footprint()));
    session->idle = {};
    session->stepped = false;
    session->released = !on_gpu(session);
    if (on_gpu(session)) revoke(*session);
  }
  wake_at(now_ + tuning_.patience);
  finish_leaving(tenant);
}

void Core::begin_to_leave(Tenant& tenant) const {
  tenant.phase = Phase::leaving;
  tenant.left = now_;
  tenant.step_at = now_ + tuning_.step_after;
  tenant.step_pause = tuning_.step_pause;
  tenant.step_took = {};
}

void Core::revoke(Session& session) {
  session.news = now_;
  session.epoch = session.tenant->epoch;
  session.tenant->epoch_used = true;  // who was told to leave comes back by a Restore
  session.order = ++last_order_;
  send(session, Revoke{.epoch = session.epoch, .order = session.order});
}

// Its gate is open, or was, and it has not drained since: what it submitted may be on the GPU, and more of it
// may come.
bool Core::at_work(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  if (!on_gpu(&session)) return false;
  const bool had_turn = session.unknown_since != Nanoseconds{} || leases_.holds(tenant.id);
  return tenant.phase == Phase::running || (tenant.phase == Phase::leaving && !session.released && had_turn);
}

// It asks for memory while its turn ends.
bool Core::waits_to_grow(const Session& session) const {
  return session.tenant->phase == Phase::leaving && at_work(session) && !session.requests.empty() &&
         lacks_room(&session);
}

// Nothing of a turn's memory is still on its way back: what it frees it cannot fill again without asking.
bool Core::has_arrived(const Session& session) const { return at_work(session) && !session.stepped; }

// Whether others of its tenant still drain, perhaps because they wait on the GPU for what this session has
// not submitted yet.
bool Core::lags(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  if (tenant.phase != Phase::leaving || tenant.resuming || now_ < tenant.step_at) return false;
  if (!on_gpu(&session) || !session.released || !session.wants || !leases_.holds(tenant.id)) return false;
  if (session.stopped) return false;
  return still_drains(tenant);
}

// Whether its tenant may be unable to end its turn before this session has got more memory: for what it is to
// submit for others, or for a thread that is allocating while the drain waits for that thread. Most drains
// wait for nothing of the kind, and end sooner.
bool Core::starved(const Session& session) const {
  const Tenant& tenant = *session.tenant;
  if (session.stopped) return false;
  if (lags(session)) return session.use.resident < session.use.swappable;
  return waits_to_grow(session) && now_ >= tenant.left + tuning_.step_after;
}

bool Core::starved(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [this](const Session* session) { return starved(*session); });
}

// A session says Released. What follows from that for the others is waited for before the next step: about as
// long as this one took. Where it is one that was not let forward, those that were have perhaps only kernels
// that run for long, as it had itself; they are waited for longer, since the turn ends only when all have
// drained at the same time.
void Core::note_drained(const Session& session) {
  Tenant& tenant = *session.tenant;
  const bool stepping = std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [](const Session* each) {
    return on_gpu(each) && each->stepped && !each->released;
  });
  const Nanoseconds took = stepping ? now_ - tenant.changed : Nanoseconds{};
  tenant.step_took = std::max(tenant.step_took, took);
  tenant.changed = now_;
  const Nanoseconds pause = 2 * (session.stepped ? took : tenant.step_took);
  tenant.step_at = std::max(tenant.step_at, now_ + std::max(tenant.step_pause, pause));
}

// Who came back and neither drains nor is stopped is at work: the tenant's lease was taken while it was
// stopped, and whoever took it is gone, or its connection was. It has the lease until it has drained.
void Core::lend_to_who_came_back(const Tenant& tenant) {
  if (tenant.phase != Phase::leaving) return;
  for (const Session* session : tenant.sessions) {
    if (session->unknown_since == Nanoseconds{} || session->stopped) continue;
    const Nanoseconds due = session->unknown_since + tuning_.look + tuning_.step_after;  // has been looked at
    wake_at(due);
    if (now_ >= due) grant_lease(*session);
  }
}

// One submission of each thread at a time: who goes further than the others wait for has to be waited for
// itself. Ever more rarely, so that it costs nothing where nobody waits.
void Core::step_laggards(Tenant& tenant) {
  if (tenant.phase != Phase::leaving) return;
  if (now_ < tenant.step_at) return wake_at(tenant.step_at);
  std::vector<Session*> laggards;
  for (Session* session : tenant.sessions)
    if (lags(*session) && session->allowed >= session->use.swappable) laggards.push_back(session);
  if (laggards.empty()) return;
  for (Session* session : tenant.sessions)
    if (session->released) session->stepped = false;
  for (Session* session : laggards) {
    session->stepped = true;
    session->released = session->wants = false;
    session->order = ++last_order_;
    grant_lease(*session);  // it may have come only after the turn's end
    send(*session, Step{.epoch = tenant.epoch, .allowed = session->allowed, .order = session->order});
  }
  tenant.changed = tenant.let_on = now_;
  tenant.step_pause += tuning_.step_pause / 64;
  tenant.step_at = now_ + tenant.step_pause;
}

void Core::finish_leaving(Tenant& tenant) {
  if (tenant.resuming) return;  // more of its sessions may still hold the lease
  auto released = [](const Session* session) { return !on_gpu(session) || session->released; };
  if (!std::all_of(tenant.sessions.begin(), tenant.sessions.end(), released)) return;
  end_turn(tenant);
  tenant.phase = Phase::out;
  tenant.taken = false;
  for (Session* session : tenant.sessions)
    session->allowed = std::min(session->allowed, session->use.resident);
}

void Core::end_turn(Tenant& tenant) {
  if (!leases_.holds(tenant.id)) return;
  for (const Session* session : tenant.sessions)
    if (on_gpu(session)) session->gpu->drained = now_;
  end_leases(tenant);
  const bool waited_for_each_other = std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                                                 [](const Session* session) { return session->stepped; });
  tenant.drain = waited_for_each_other ? now_ - tenant.left : Nanoseconds{};
  tenant.last_ran = now_;
  tenant.waiting_since = now_;
}

// A step holds the tenant's lease on a GPU while it has a session there.
void Core::sync_leases(Tenant& tenant) {
  std::vector<std::pair<LeaseKey, Epoch>> ended;
  for (auto it = leases_.open().lower_bound(LeaseKey{.tenant = tenant.id, .gpu = {}, .step = {}});
       it != leases_.open().end() && it->first.tenant == tenant.id; ++it) {
    if (!tenant.resuming && !anybody_for(it->first, tenant)) ended.emplace_back(it->first, it->second.epoch);
  }
  for (const auto& [key, epoch] : ended) {
    leases_.release(key, now_);
    actions_.emplace_back(RecordLease{.grant = false, .key = key, .epoch = epoch, .at = now_});
  }
  if (tenant.phase != Phase::running) return;
  for (const Session* session : tenant.sessions)
    if (on_gpu(session)) grant_lease(*session);
}

void Core::grant_lease(const Session& session) {
  const Tenant& tenant = *session.tenant;
  const LeaseKey key = lease_of(session);
  if (leases_.grant(key, tenant.epoch, now_))
    actions_.emplace_back(RecordLease{.grant = true, .key = key, .epoch = tenant.epoch, .at = now_});
}

void Core::end_leases(Tenant& tenant) {
  std::vector<std::pair<LeaseKey, Epoch>> ended;
  const auto& open = leases_.open();
  for (auto it = open.lower_bound({.tenant = tenant.id, .gpu = {}, .step = {}});
       it != open.end() && it->first.tenant == tenant.id; ++it)
    ended.emplace_back(it->first, it->second.epoch);
  for (const auto& [key, epoch] : ended) {
    leases_.release(key, now_);
    actions_.emplace_back(RecordLease{.grant = false, .key = key, .epoch = epoch, .at = now_});
  }
}

void Core::tell_contended(Domain& domain, bool contended) {
  for (Tenant* tenant : domain.tenants)
    for (Session* session : tenant->sessions) {
      if (!on_gpu(session) || session->contended == contended) continue;
      session->contended = contended;
      if (!contended) session->idle = {};
      if (contended) tenant->busy_since = now_;
      actions_.emplace_back(SetContended{.session = session->id, .contended = contended});
      if (contended && session->gate_open) send(*session, OthersWait{});
    }
}

// Some turn will have to end then, and waits for what is queued. Nobody can tell when: a tenant that has
// memory elsewhere comes back without warning.
bool Core::tell_oversubscribed(Domain& domain) {
  begin_choice(domain);
  const bool oversubscribed = domain.limited || (domain.tenants.size() > 1 && !everybody_fits(domain));
  const Nanoseconds queue = oversubscribed ? domain.rules.queue : Nanoseconds{};
  for (Tenant* tenant : domain.tenants)
    for (Session* session : tenant->sessions) {
      if (!on_gpu(session) || (session->oversubscribed == oversubscribed && session->queue == queue))
        continue;
      session->oversubscribed = oversubscribed;
      session->queue = queue;
      actions_.emplace_back(
          SetOversubscribed{.session = session->id, .oversubscribed = oversubscribed, .queue = queue});
    }
  return oversubscribed;
}

}  // namespace sharedgpu
