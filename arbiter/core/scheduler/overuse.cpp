// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/overuse.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/model/answers.h"

namespace sharedgpu {
namespace {

// Time that an eviction takes at 64 MiB/s, as on a host that is short of everything.
Nanoseconds slow_copy(Bytes bytes) {
  constexpr std::uint64_t kPerSecond = 64ull << 20;
  return std::chrono::milliseconds(bytes.count / (kPerSecond / 1000));
}

}  // namespace

void Overuse::watch(const Domain& domain, const Residencies& at) {
  for (const Tenant* tenant : domain.tenants) watch(*tenant, at);
}

void Overuse::note_entry(const Tenant& tenant, const Residencies& at) {
  if (has_left(tenant, at)) tenants_[tenant] = {};
}

void Overuse::note_end(const Tenant& tenant) {
  Row& its = tenants_[tenant];
  pass_time(its);
  its.clock = Clock::stands;
  its.overdue.reset();
}

void Overuse::watch(const Tenant& tenant, const Residencies& at) {
  Row& its = tenants_[tenant];
  pass_time(its);
  if (has_left(tenant, at)) {
    its = {};
    return;
  }
  const Session* session = awaited(tenant, at);
  if (session == nullptr) {
    its.overdue.reset();
    its.clock = Clock::stands;
    // Those that wait have to wait no more, for it or for anybody.
    if (its.since && !others_wait(tenant)) its.since.reset();
    return;
  }
  if (!its.since) begin(its);
  note_progress(tenant, its, at);
  its.clock = clock_for(tenant, *session, at);
  its.overdue = Overdue{.gpu = session->gpu->uuid,
                        .since = *its.since,
                        .stopped = at[*session].frozen,
                        .evicts = at[*session].phase == Phase::out};
  if (tuning_.overuse && its.clock != Clock::stands) respond(tenant, *session->gpu, its);
}

// The responses that it has had stay.
void Overuse::begin(Row& its) const {
  its.since = its.watched = effects_.now();
  its.lasted = {};
  its.to_evict = tuning_.patience;
  its.to_grow = tuning_.overuse ? tuning_.overuse->most : Nanoseconds{};
  its.owed = {};
}

void Overuse::pass_time(Row& its) const {
  Nanoseconds passed = effects_.now() - std::exchange(its.watched, effects_.now());
  if (its.clock == Clock::stands) return;
  const auto spare = [&](Nanoseconds& left) {
    const Nanoseconds spared = std::min(left, passed);
    left -= spared;
    passed -= spared;
  };
  if (its.clock == Clock::evicts) spare(its.to_evict);
  if (its.clock == Clock::grows) spare(its.to_grow);
  its.lasted += passed;
}

// What has left the GPU since the last look buys time, and never more than a silent tenant has.
void Overuse::note_progress(const Tenant& tenant, Row& its, const Residencies& at) const {
  Bytes owed;
  for (const Session* session : tenant.sessions)
    if (attached(session)) owed += memory_.owed(*session, at[*session]);
  const Bytes left = minus(std::exchange(its.owed, owed), owed);
  its.to_evict = std::min(tuning_.patience, its.to_evict + slow_copy(left));
}

bool Overuse::has_left(const Tenant& tenant, const Residencies& at) const {
  if (turns_.phase_of(tenant) != Phase::out) return false;
  return std::none_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return attached(session) && memory_.owed(*session, at[*session]) != Bytes{};
  });
}

// A session of a tenant that leaves or has yet to evict, for whose GPU others wait. One whose process runs
// comes before those that are stopped.
const Session* Overuse::awaited(const Tenant& tenant, const Residencies& at) const {
  const Phase phase = turns_.phase_of(tenant);
  if (phase != Phase::leaving && phase != Phase::out) return nullptr;
  const Session* found = nullptr;
  auto others_want = answers_about<Gpu>([&](const Gpu& gpu) { return others_wait(gpu, tenant); });
  for (const Session* session : tenant.sessions) {
    if (!attached(session)) continue;
    const bool done = phase == Phase::leaving ? turns_.drain_confirmed(*session)
                                              : memory_.owed(*session, at[*session]) == Bytes{};
    if (done || !others_want(*session->gpu)) continue;
    if (!presence_.frozen(*session)) return session;
    if (found == nullptr) found = session;
  }
  return found;
}

Overuse::Clock Overuse::clock_for(const Tenant& tenant, const Session& awaited, const Residencies& at) const {
  if (presence_.frozen(awaited)) return Clock::stands;
  if (at[awaited].phase == Phase::out) return Clock::evicts;
  const auto is_displaced = [&](const Session* session) {
    return attached(session) && memory_.displaced(*session, at[*session]);
  };
  if (std::any_of(tenant.sessions.begin(), tenant.sessions.end(), is_displaced)) return Clock::stands;
  return memory_.needs_growth_to_drain(tenant, at) ? Clock::grows : Clock::runs;
}

// One that was on its way in, and had to leave since there is no room, waits as well; so does one that asks
// for memory.
bool Overuse::waits(const Tenant& tenant) const {
  if (presence_.absent(tenant) || turns_.revoked(tenant)) return false;
  if (turns_.wants(tenant) && !turns_.leases().holds(tenant.id)) return true;
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    const SessionBook& book = memory_.of(*session);
    return attached(session) && !book.requests.empty() && book.lacks_room();
  });
}

bool Overuse::others_wait(const Gpu& gpu, const Tenant& tenant) const {
  return std::any_of(gpu.sessions.begin(), gpu.sessions.end(),
                     [&](const Session* other) { return other->tenant != &tenant && waits(*other->tenant); });
}

bool Overuse::others_wait(const Tenant& tenant) const {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    return attached(session) && others_wait(*session->gpu, tenant);
  });
}

void Overuse::respond(const Tenant& tenant, const Gpu& gpu, Row& its) {
  using Response = Overstay::Response;
  const OveruseRules& rules = *tuning_.overuse;
  const Nanoseconds spared = its.clock == Clock::evicts  ? its.to_evict
                             : its.clock == Clock::grows ? its.to_grow
                                                         : Nanoseconds{};
  const auto respond_after = [&](Nanoseconds time, bool& done, Response response) {
    if (done) return;
    if (its.lasted < time) return effects_.wake_at(effects_.now() + spared + time - its.lasted);
    done = true;
    effects_.put(Overstay{.tenant = tenant.id,
                          .gpu = gpu.uuid,
                          .number = gpu.number,
                          .lasted = its.lasted,
                          .response = response,
                          .evicts = its.overdue->evicts});
  };
  respond_after(rules.most, its.exceeded, rules.cancel ? Response::cancel : Response::warn);
  if (its.exceeded) its.noted = true;
  respond_after(rules.notice, its.noted, Response::note);
}

}  // namespace sharedgpu
