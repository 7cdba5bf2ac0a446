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
    gpu->load = {};
    gpu->members = gpu->timed = 0;
  }
  for (Tenant* tenant : domain.tenants) {
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
    Bytes needed;
    for (const Session* session : gpu->sessions) needed += session->needs;
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
// are left, and who fits is taken along. Calls `each` with the members of each, and returns how many there
// are. A choice must have begun, with nobody chosen.
unsigned Core::for_each_set(const Domain& domain, Among among,
                            const std::function<void(const std::vector<Tenant*>&)>& each) {
  constexpr unsigned kMostSets = 64;  // more make no turn shorter, and take long to count
  std::vector<Tenant*> left;
  std::copy_if(domain.tenants.begin(), domain.tenants.end(), std::back_inserter(left),
               [among](const Tenant* tenant) { return among(tenant->reckoned); });
  unsigned sets = 0;
  for (std::vector<Tenant*> set; sets < kMostSets && !left.empty(); ++sets, set.clear()) {
    std::erase_if(left, [&](Tenant* tenant) {
      choose(*tenant, true);
      const bool fits_in = set.empty() || fits(*tenant);
      choose(*tenant, fits_in);
      if (fits_in) set.push_back(tenant);
      return fits_in;
    });
    each(set);
    for (Tenant* tenant : set) choose(*tenant, false);
  }
  return sets;
}

}  // namespace sharedgpu
