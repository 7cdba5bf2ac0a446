// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/overuse.h"

#include <algorithm>
#include <utility>

#include "arbiter/core/model/answers.h"

namespace sharedgpu {

void Overuse::watch(const Domain& domain) {
  for (const Tenant* tenant : domain.tenants) watch(*tenant);
}

void Overuse::watch(const Tenant& tenant) {
  Row& its = tenants_[tenant];
  if (its.gates_closed != turns_.gates_closed(tenant)) its = {.gates_closed = turns_.gates_closed(tenant)};
  const Session* session = awaited(tenant);
  if (session == nullptr) return its.overdue.reset();
  const Nanoseconds now = effects_.now();
  if (!its.overdue) {
    its.overdue = Overdue{.gpu = {}, .since = now};
    its.stopped = {};
  }
  if (its.overdue->stopped) its.stopped += now - its.watched;
  its.watched = now;
  its.overdue->gpu = session->gpu->uuid;
  its.overdue->stopped = presence_.frozen(*session);
  if (rules_ && !its.overdue->stopped) respond(tenant, *session->gpu, its);
}

// A session of a tenant that leaves, for whose GPU others wait. One whose process runs comes before those
// that are stopped.
const Session* Overuse::awaited(const Tenant& tenant) const {
  if (turns_.phase_of(tenant) != Phase::leaving) return nullptr;
  const Session* found = nullptr;
  auto others_want = answers_about<Gpu>([&](const Gpu& gpu) { return others_wait(gpu, tenant); });
  for (const Session* session : tenant.sessions) {
    if (!attached(session) || turns_.drain_confirmed(*session) || !others_want(*session->gpu)) continue;
    if (!presence_.frozen(*session)) return session;
    if (found == nullptr) found = session;
  }
  return found;
}

// One that was on its way in, and had to leave since there is no room, waits as well.
bool Overuse::waits(const Tenant& tenant) const {
  return turns_.wants(tenant) && !presence_.absent(tenant) && !turns_.leases().holds(tenant.id) &&
         !turns_.revoked(tenant);
}

bool Overuse::others_wait(const Gpu& gpu, const Tenant& tenant) const {
  return std::any_of(gpu.sessions.begin(), gpu.sessions.end(),
                     [&](const Session* other) { return other->tenant != &tenant && waits(*other->tenant); });
}

void Overuse::respond(const Tenant& tenant, const Gpu& gpu, Row& its) {
  using Response = Overstay::Response;
  const Nanoseconds counts_from = its.overdue->since + its.stopped;
  const auto respond_after = [&](Nanoseconds time, bool& done, Response response) {
    if (done) return;
    effects_.wake_at(counts_from + time);
    if (effects_.now() < counts_from + time) return;
    done = true;
    effects_.put(Overstay{.tenant = tenant.id,
                          .gpu = gpu.uuid,
                          .number = gpu.number,
                          .lasted = effects_.now() - counts_from,
                          .response = response});
  };
  respond_after(rules_->most, its.exceeded, rules_->cancel ? Response::cancel : Response::warn);
  if (its.exceeded) its.noted = true;
  respond_after(rules_->notice, its.noted, Response::note);
}

}  // namespace sharedgpu
