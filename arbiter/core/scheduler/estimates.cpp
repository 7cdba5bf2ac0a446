// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/estimates.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/scheduler/idleness.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::milliseconds kIdleNews{100};
// Bytes per second. A guess of the copy speed, for the duration of a tenant's first handoff.
constexpr std::uint64_t kGuessedSpeed = 50'000'000'000;

}  // namespace

void Estimates::on_want(const Tenant& tenant, bool first) {
  TenantRow& its = tenants_[tenant];
  const Nanoseconds pause = effects_.now() - turns_.gates_closed(tenant);
  if (first && its.used != Nanoseconds{} && pause >= tuning_.idle_release) {
    its.burst = its.burst == Nanoseconds{} ? its.used : (3 * its.burst + its.used) / 4;
    its.used = {};
  }
  if (!std::exchange(its.released_idle, false)) return;
  const bool proved_long =
      std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
        return !attached(session) ||
               was_long(pause, lengths_.of(*session->gpu).handoff, tuning_.idle_release);
      });
  its.long_pauses = proved_long ? std::min(its.long_pauses + 1, kMostLongPauses) : 0;
}

void Estimates::on_idle(const Session& session, Nanoseconds idle) {
  sessions_[session].idle_reported = effects_.now();
  sessions_[session].idle = idle;
}

void Estimates::on_contended(const Session& session, bool contended) {
  if (contended)
    tenants_[*session.tenant].busy_since = effects_.now();
  else
    sessions_[session].idle = {};
}

void Estimates::on_leave(const Tenant& tenant) {
  // Subtracts the tenant's idle time. Time before other tenants began to wait does not count.
  if (turns_.phase_of(tenant) == Phase::running)
    tenants_[tenant].used += std::max(Nanoseconds{}, busy_time(tenant) - idle_time(tenant));
}

void Estimates::on_open(const Tenant& tenant) {
  tenants_[tenant].busy_since = effects_.now();
  forget_idleness(tenant);
}

void Estimates::forget_idleness(const Tenant& tenant) {
  for (const Session* session : tenant.sessions) sessions_[*session].idle = {};
}

void Estimates::on_handoff(const Tenant& tenant, Nanoseconds took) {
  // The first handoff may be slow, since leaving tenants have to allocate and pin host memory. So if the
  // second handoff is faster, the estimate ignores the first handoff.
  TenantRow& its = tenants_[tenant];
  const bool first = its.handoff == Nanoseconds{};
  if (first || (its.handoff_is_first && took < its.handoff))
    its.handoff = took;
  else
    its.handoff = (3 * its.handoff + took) / 4;
  its.handoff_is_first = first;
}

Nanoseconds Estimates::expected_handoff(const Tenant& tenant) const {
  if (handoff(tenant) > Nanoseconds{}) return handoff(tenant);
  Bytes size;
  for (const Session* session : tenant.sessions) size += memory_.of(*session).use.swappable;
  return std::chrono::milliseconds(size.count / (kGuessedSpeed / 1000));
}

Nanoseconds Estimates::burst(const Tenant& tenant) const {
  const TenantRow& its = tenants_[tenant];
  const bool runs = turns_.phase_of(tenant) == Phase::running;
  return std::max(its.burst, its.used + (runs ? busy_time(tenant) : Nanoseconds{}));
}

Nanoseconds Estimates::submission(const Tenant& tenant) const {
  const bool counts = turns_.phase_of(tenant) == Phase::running && can_yield(tenant);
  return counts ? sessions_[*tenant.sessions.front()].submission : Nanoseconds{};
}

// The time for which the running tenant has had the GPU while others waited. Zero if no tenant waits, since
// sessions then report no idleness.
Nanoseconds Estimates::busy_time(const Tenant& tenant) const {
  const bool watched =
      std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                  [this](const Session* session) { return turns_.page(*session).contended; });
  return watched ? effects_.now() - tenants_[tenant].busy_since : Nanoseconds{};
}

// Returns the time for which all sessions of the tenant have been idle, by their reports.
Nanoseconds Estimates::idle_time(const Tenant& tenant) const {
  Nanoseconds least = Nanoseconds::max();
  for (const Session* session : tenant.sessions)
    if (attached(session)) least = std::min(least, sessions_[*session].idle);
  return least == Nanoseconds::max() ? Nanoseconds{} : least;
}

bool Estimates::idle_enough(const Tenant& tenant) const {
  if (turns_.phase_of(tenant) != Phase::running) return false;
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [&](const Session* session) {
    if (!attached(session) || presence_.frozen(*session)) return true;
    const SessionRow& its = sessions_[*session];
    const Nanoseconds least = idle_patience(lengths_.of(*session->gpu).handoff, long_pauses(tenant),
                                            tuning_.idle_release, tuning_.idle_cap);
    // An idle session repeats its report at growing intervals. If the reports stop, the session is at work
    // again.
    const Nanoseconds fresh = std::max<Nanoseconds>(2 * tuning_.idle_release, its.idle / 2 + kIdleNews);
    return its.idle > Nanoseconds{} && its.idle >= least && effects_.now() - its.idle_reported <= fresh;
  });
}

}  // namespace sharedgpu
