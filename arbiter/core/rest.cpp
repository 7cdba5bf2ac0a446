// SPDX-License-Identifier: Apache-2.0
// Who rests: tenants that wait for their turn, or pause, with nothing on the GPU and nothing under way.
//
// Of many tenants nearly all rest at any moment. Neither time nor what others do changes anything about them,
// so an event costs what the few do that are awake: for those at rest there are sums, and what all have in
// common is told to all only when it changes. Whoever is heard of, or chosen, wakes.
#include <algorithm>
#include <set>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

bool by_number(const Session* a, const Session* b) { return a->id < b->id; }
bool by_place(const Tenant* a, const Tenant* b) { return a->place < b->place; }

// What is reckoned of one that rests, but for its handoffs.
Reckoned at_rest(bool waits) { return {.waits = waits, .turns = {.takes = waits}}; }

template <class Pointer, class Before>
void insert(std::vector<Pointer>& sorted, Pointer one, Before before) {
  sorted.insert(std::upper_bound(sorted.begin(), sorted.end(), one, before), one);
}

// Among which those of a session at rest are.
std::multiset<Bytes>& adds_at_rest(const Session& session) {
  return session.gpu->resting_adds[session.tenant->reckoned.waits ? 1 : 0];
}

}  // namespace

Bytes Gpu::least_at_rest(Among among) const {
  Bytes its{~0ull};
  for (const bool waits : {false, true})
    if (const auto& adds = resting_adds[waits ? 1 : 0]; !adds.empty() && among(at_rest(waits)))
      its = std::min(its, *adds.begin());
  return its;
}

void Core::join(Gpu& gpu, Session& session) {
  insert(gpu.sessions, &session, by_number);
  insert(gpu.awake, &session, by_number);
}

void Core::part(Gpu& gpu, Session& session) {
  std::erase(gpu.sessions, &session);
  std::erase(gpu.awake, &session);
}

// Before anything about it changes.
void Core::wake(Tenant& tenant) {
  if (!domains_changed_ && attached(tenant)) domains_[tenant.domain].due = {};
  if (std::exchange(tenant.awake, true)) return;
  for (Session* session : tenant.sessions) {
    if (!on_gpu(session)) continue;
    session->gpu->resting -= session->use.footprint();
    session->gpu->resting_pinned -= session->use.pinned;
    session->gpu->resting_contexts -= session->use.context;
    session->gpu->resting_growth -= put_off(*session);
    adds_at_rest(*session).erase(adds_at_rest(*session).find(session->adds()));
    insert(session->gpu->awake, session, by_number);
  }
  if (domains_changed_) return;
  Domain& domain = domains_[tenant.domain];
  insert(domain.awake, &tenant, by_place);
  if (tenant.wants()) --domain.resting_waiters;
}

void Core::let_rest(Domain& domain) {
  std::erase_if(domain.awake, [&](Tenant* tenant) {
    if (!may_rest(*tenant)) return false;
    tenant->awake = false;
    for (Session* session : tenant->sessions) {
      if (!on_gpu(session)) continue;
      session->gpu->resting += session->use.footprint();
      session->gpu->resting_pinned += session->use.pinned;
      session->gpu->resting_contexts += session->use.context;
      session->gpu->resting_growth += put_off(*session);
      adds_at_rest(*session).insert(session->adds());
      std::erase(session->gpu->awake, session);
    }
    if (tenant->wants()) ++domain.resting_waiters;
    return true;
  });
}

bool Core::may_rest(const Tenant& tenant) const {
  if (tenant.phase != Phase::out || tenant.resuming || absent(tenant) || !as_reckoned(tenant)) return false;
  // Who lacks nothing may come in at any moment.
  bool lacks = false;
  for (const Session* session : tenant.sessions) {
    if (!on_gpu(session)) continue;
    if (!has_nothing_under_way(*session)) return false;
    lacks = lacks || session->use.swappable > Bytes{};
  }
  return lacks;
}

bool Core::has_nothing_under_way(const Session& session) const {
  const bool away = std::max({session.use.resident, session.allowed, session.under_way}) == Bytes{};
  const bool asks = !session.requests.empty() || !session.held_back.empty() || session.settling != Bytes{} ||
                    session.pinned != session.use.pinned || said_host_short(session);
  const bool watched =
      session.stuck(now_) || session.looked != Nanoseconds{} || session.less_host_since != Nanoseconds{};
  return away && !asks && !watched;
}

bool Core::consistent() const {
  bool right = true;
  for (const auto& [uuid, gpu] : state_.gpus) {
    std::vector<Session*> awake;
    std::array<std::multiset<Bytes>, 2> adds;
    Bytes resting;
    Bytes pinned;
    Bytes contexts;
    Bytes growth;
    std::set<const Tenant*> users;
    bool timed = false;
    for (Session* session : gpu.sessions) {
      users.insert(session->tenant);
      timed = timed || is_timed(*session->tenant);
      if (session->tenant->awake) {
        awake.push_back(session);
        continue;
      }
      resting += demand_of(*session);
      pinned += unevictable(*session);
      contexts += session->use.context;
      growth += put_off(*session);
      adds[session->tenant->wants() ? 1 : 0].insert(session->adds());
      right = right && session->needs == demand_of(*session) && session->keeps == unevictable(*session);
      right = right && promised(*session) == unevictable(*session);
    }
    right = right && awake == gpu.awake && resting == gpu.resting && pinned == gpu.resting_pinned &&
            contexts == gpu.resting_contexts && growth == gpu.resting_growth && adds == gpu.resting_adds;
    right =
        right && (domains_changed_ || users.empty() || gpu.has_time_for_all == (!timed || users.size() == 1));
  }
  for (const auto& [id, tenant] : state_.tenants) {
    right = right && (tenant.awake || (attached(tenant) && !must_come_home(tenant) && may_rest(tenant)));
    right = right && tenant.wants() == std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                                                   [](const Session* session) { return session->wants; });
  }
  if (domains_changed_) return right;
  for (const Domain& domain : domains_) {
    std::vector<Tenant*> awake;
    std::size_t waiters = 0;
    Domain::Stakes counted;
    const auto what_counts = [&domain](const Standing& standing) {
      return domain.rules.policy->what_counts(standing);
    };
    const std::vector<Due> due = shares(domain);
    for (Tenant* tenant : domain.tenants) {
      if (tenant->awake)
        awake.push_back(tenant);
      else
        waiters += waits(*tenant) ? 1 : 0;
      for (const Session* session : tenant->sessions)
        right = right && (in_grace_ || !on_gpu(session) || session->contended == domain.contended);
    }
    right = right && awake == domain.awake && waiters == domain.resting_waiters && bounds_are_right(domain);
    if (in_grace_) continue;
    for (std::size_t i = 0; i < due.size(); ++i) {
      const Tenant& tenant = *domain.tenants[i];
      counted.count(tenant.stake, 1);
      right = right && tenant.stake == stake_of(tenant) && tenant.due == due[i].due &&
              tenant.share == due[i].share &&
              what_counts(tenant.standing) == what_counts(standing_of(tenant, domain.common));
    }
    right = right && counted == domain.stakes;
  }
  return right;
}

}  // namespace sharedgpu
