// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/selection.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {

// Calls `count` once for each GPU that the tenant uses.
template <class Count>
void Selection::for_each_gpu(const Tenant& tenant, Count count) {
  for (auto it = tenant.sessions.begin(); it != tenant.sessions.end(); ++it) {
    const Gpu* gpu = (*it)->gpu;
    const auto is_here = [gpu](const Session* session) { return session->gpu == gpu; };
    if (gpu == nullptr || std::any_of(tenant.sessions.begin(), it, is_here)) continue;
    count(gpus_[*gpu]);
  }
}

void Selection::begin(const Domain& domain, const MemoryBooks& memory, const Residencies& at, Basis basis) {
  domain_ = &domain;
  for (const Gpu* gpu : domain.gpus) gpus_.begin(*gpu).usable = memory.usable_now(*gpu);
  for (const Tenant* tenant : domain.tenants) {
    chosen_[*tenant] = false;
    for_each_gpu(*tenant, [&](GpuRow& gpu) {
      ++gpu.users;
      gpu.exclusive_users += tenant->exclusive ? 1 : 0;
      gpu.unsettled_users += tenant->unsettled ? 1 : 0;
    });
    const bool grows = memory.needs_growth_to_drain(*tenant, at);
    for (const Session* session : tenant->sessions) {
      SessionRow& its = sessions_[*session];
      its.demand = memory.demand(*session, at[*session]);
      if (!attached(session)) continue;
      its.part.needs = basis == Basis::peak ? std::max(its.demand, memory.of(*session).peak) : its.demand;
      its.part.keeps = memory.unevictable(*session, at[*session], grows);
      gpus_[*session->gpu].load += its.part.keeps;
      gpus_[*session->gpu].needed_by_all += its.part.needs;
    }
  }
}

void Selection::choose(const Tenant& tenant, bool chosen) {
  if (std::exchange(chosen_[tenant], chosen) == static_cast<char>(chosen)) return;
  for_each_gpu(tenant, [&](GpuRow& gpu) {
    gpu.members += chosen ? 1 : -1u;
    if (tenant.exclusive) gpu.exclusive += chosen ? 1 : -1u;
    if (tenant.unsettled) gpu.unsettled += chosen ? 1 : -1u;
  });
  for (const Session* session : tenant.sessions) {
    if (!attached(session)) continue;
    const Part& its = sessions_[*session].part;
    gpus_[*session->gpu].load += chosen ? its.needs : its.keeps;
    gpus_[*session->gpu].load -= chosen ? its.keeps : its.needs;
  }
}

bool Selection::fits() const {
  return std::all_of(domain_->gpus.begin(), domain_->gpus.end(), [this](const Gpu* gpu) {
    const GpuRow& its = gpus_[*gpu];
    return its.load <= its.usable && its.has_time();
  });
}

bool Selection::fits(const Tenant& tenant) const {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    if (!attached(session)) return true;
    const GpuRow& its = gpus_[*session->gpu];
    return its.has_time() && (sessions_[*session].demand == Bytes{} || its.load <= its.usable);
  });
}

bool Selection::everybody_fits() const {
  return std::all_of(domain_->gpus.begin(), domain_->gpus.end(), [this](const Gpu* gpu) {
    const GpuRow& its = gpus_[*gpu];
    return its.needed_by_all <= its.usable && its.has_time_for_all();
  });
}

bool Selection::disturbs_nobody(const Tenant& tenant) const {
  return std::all_of(tenant.sessions.begin(), tenant.sessions.end(), [this](const Session* session) {
    return sessions_[*session].demand == Bytes{} &&
           (!attached(session) || gpus_[*session->gpu].has_time_for_all());
  });
}

unsigned Selection::for_each_set(std::vector<const Tenant*> left,
                                 const std::function<void(const std::vector<const Tenant*>&)>& each) {
  constexpr unsigned kMostSets = 64;  // counting more sets is slow, and does not make turns shorter
  unsigned sets = 0;
  for (std::vector<const Tenant*> set; sets < kMostSets && !left.empty(); ++sets, set.clear()) {
    std::erase_if(left, [&](const Tenant* tenant) {
      choose(*tenant, true);
      const bool fits_in = set.empty() || fits(*tenant);
      choose(*tenant, fits_in);
      if (fits_in) set.push_back(tenant);
      return fits_in;
    });
    each(set);
    for (const Tenant* tenant : set) choose(*tenant, false);
  }
  return sets;
}

}  // namespace sharedgpu
