// SPDX-License-Identifier: Apache-2.0
// Who fits together: what a domain's GPUs would carry if the tenants that are chosen had all that they need,
// beside what the others cannot give up.
//
// What a session needs and keeps is looked at once, when a choice begins; choosing a tenant or dropping it
// again then costs the same for many tenants as for few. A choice is void when a tenant has entered or left.
#include <algorithm>
#include <utility>

#include "arbiter/core/actions.h"

namespace sharedgpu {

namespace {

// Tenants that are chosen, by GPU.
void count_member(const Tenant& tenant, bool chosen) {
  for (auto it = tenant.sessions.begin(); it != tenant.sessions.end(); ++it) {
    Gpu* gpu = (*it)->gpu;
    const auto here = [gpu](const Session* session) { return session->gpu == gpu; };
    if (gpu == nullptr || std::any_of(tenant.sessions.begin(), it, here)) continue;
    gpu->members += chosen ? 1 : -1u;
    if (tenant.timed) gpu->timed += chosen ? 1 : -1u;
  }
}

bool has_time(const Gpu& gpu) { return gpu.timed == 0 || gpu.members <= 1; }

}  // namespace

Bytes demand_of(const Session& session) {
  Bytes resident = std::max({session.use.swappable, session.use.resident, session.under_way});
  if (session.tenant->phase == Phase::entering) resident = std::max(resident, session.allowed);
  return resident + std::max(session.use.pinned, session.pinned);
}

void Core::begin_choice(const Domain& domain, Reckoning reckoning) const {
  for (Gpu* gpu : domain.gpus) {
    gpu->load = gpu->resting_pinned;
    gpu->members = gpu->timed = 0;
  }
  for (Tenant* tenant : domain.awake) {
    tenant->chosen = false;
    for (Session* session : tenant->sessions) {
      if (!on_gpu(session)) continue;
      session->needs = demand_of(*session);
      if (reckoning == Reckoning::at_peak) session->needs = std::max(session->needs, session->peak);
      session->keeps = unevictable(*session);
      session->gpu->load += session->keeps;
    }
  }
}

void Core::choose(Tenant& tenant, bool chosen) {
  if (std::exchange(tenant.chosen, chosen) == chosen) return;
  count_member(tenant, chosen);
  for (Session* session : tenant.sessions) {
    if (!on_gpu(session)) continue;
    session->gpu->load += chosen ? session->needs : session->keeps;
    session->gpu->load -= chosen ? session->keeps : session->needs;
  }
}

bool Core::fits(const Domain& domain) {
  return std::all_of(domain.gpus.begin(), domain.gpus.end(),
                     [](const Gpu* gpu) { return gpu->load <= gpu->usable && has_time(*gpu); });
}

// What all its tenants' claims to time come to. Ends the choice under way.
void Core::note_time(Domain& domain) {
  for (Gpu* gpu : domain.gpus) gpu->members = gpu->timed = 0;
  for (const Tenant* tenant : domain.tenants) {
    count_member(*tenant, true);
    domain.timed = domain.timed || tenant->timed;
    domain.limited = domain.limited || (tenant->timed && tenant->claims.limit < 1);
  }
  for (Gpu* gpu : domain.gpus) gpu->has_time_for_all = has_time(*gpu);
}

// If all ran. A choice must have begun.
bool Core::everybody_fits(const Domain& domain) {
  return std::all_of(domain.gpus.begin(), domain.gpus.end(), [](const Gpu* gpu) {
    Bytes needed = gpu->resting;
    for (const Session* session : gpu->awake) needed += session->needs;
    return needed <= gpu->usable && gpu->has_time_for_all;
  });
}

// For a newcomer only the memory of those GPUs counts on which it needs any.
bool Core::fits(const Tenant& newcomer) {
  return std::all_of(newcomer.sessions.begin(), newcomer.sessions.end(), [](const Session* session) {
    if (!on_gpu(session)) return true;
    const Gpu& gpu = *session->gpu;
    return has_time(gpu) && (demand_of(*session) == Bytes{} || gpu.load <= gpu.usable);
  });
}

// The running sets that there would be if all of these took turns: each is begun with the first of those that
// are left, and who fits is taken along. A choice must have begun, with nobody chosen.
std::vector<std::vector<Tenant*>> Core::sets_of(const Domain& domain, std::vector<Tenant*> tenants) {
  constexpr std::size_t kMostSets = 64;  // more make no turn shorter, and take long to count
  // The least that one of them adds to a GPU: where not even that fits anywhere, a set is full.
  for (Gpu* gpu : domain.gpus) gpu->least = Bytes{~0ull};
  for (const Tenant* tenant : tenants)
    for (const Session* session : tenant->sessions)
      if (on_gpu(session))
        session->gpu->least = std::min(session->gpu->least, minus(session->needs, session->keeps));
  const auto full = [](const Gpu* gpu) {
    return gpu->timed > 0 || minus(gpu->usable, gpu->load) < gpu->least;
  };
  std::vector<std::vector<Tenant*>> sets;
  std::size_t first = 0;  // of those that are left
  while (first < tenants.size() && sets.size() < kMostSets) {
    std::vector<Tenant*>& set = sets.emplace_back();
    std::vector<Tenant*> passed;
    std::size_t next = first;
    for (; next < tenants.size(); ++next) {
      Tenant* tenant = tenants[next];
      if (!set.empty() && std::all_of(domain.gpus.begin(), domain.gpus.end(), full)) break;
      choose(*tenant, true);
      const bool joins = set.empty() || fits(*tenant);
      choose(*tenant, joins);
      (joins ? set : passed).push_back(tenant);
    }
    first = next - passed.size();
    std::copy(passed.begin(), passed.end(), tenants.begin() + static_cast<std::ptrdiff_t>(first));
    for (Tenant* tenant : set) choose(*tenant, false);
  }
  return sets;
}

}  // namespace sharedgpu
