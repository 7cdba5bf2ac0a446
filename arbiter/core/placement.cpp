// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/placement.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace sharedgpu {
namespace {

// A GPU that may be chosen, and its use by all tenants but the one that is to be placed.
struct Candidate {
  const Snapshot::Gpu* gpu = nullptr;
  bool used = false;  // sessions of the tenant to be placed use this GPU
  std::uint64_t units = 0;
  Bytes memory;
  unsigned tenants = 0;

  auto rank() const { return std::tuple(!used, units, memory, tenants, gpu->number); }
};

Candidate candidate_of(const Snapshot& state, const Snapshot::Gpu& gpu, TenantId newcomer) {
  Candidate candidate;
  candidate.gpu = &gpu;
  candidate.memory = gpu.unmanaged;
  std::set<TenantId> placed;
  std::set<TenantId> guests;
  for (const auto& [id, placement] : state.placements) {
    const auto& its = placement.gpus;
    if (id == newcomer || std::find(its.begin(), its.end(), gpu.uuid) == its.end()) continue;
    placed.insert(id);
    candidate.units += placement.units;
  }
  for (const Snapshot::Session& session : state.sessions) {
    if (session.gpu != gpu.uuid) continue;
    if (session.tenant == newcomer) {
      candidate.used = true;
      continue;
    }
    candidate.memory += session.use.footprint();
    if (placed.count(session.tenant) == 0) guests.insert(session.tenant);
  }
  candidate.units += guests.size();
  candidate.tenants = static_cast<unsigned>(placed.size() + guests.size());
  return candidate;
}

}  // namespace

bool is_open_to(const Snapshot::Gpu& gpu, const Demand& demand) {
  return !gpu.learned && (demand.devices.empty() || !gpu.minor || demand.devices.has(*gpu.minor));
}

bool serves(const Snapshot::Gpu& gpu, const Demand& demand) {
  return gpu.condition == GpuCondition::healthy && is_open_to(gpu, demand);
}

bool takes(const Snapshot::Gpu& gpu, const Demand& demand) { return !gpu.drained && serves(gpu, demand); }

std::vector<GpuUuid> choose_gpus(const Snapshot& state, TenantId tenant, const Demand& demand) {
  std::vector<Candidate> all;
  for (const Snapshot::Gpu& gpu : state.gpus)
    if (takes(gpu, demand)) all.push_back(candidate_of(state, gpu, tenant));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.rank() < b.rank(); });
  all.resize(std::min<std::size_t>(all.size(), std::max(demand.gpus, 1u)));
  // Sorts in the host's order, because the tenant's processes enumerate their GPUs in that order.
  std::sort(all.begin(), all.end(),
            [](const auto& a, const auto& b) { return a.gpu->number < b.gpu->number; });

  std::vector<GpuUuid> chosen;
  for (const Candidate& candidate : all) chosen.push_back(candidate.gpu->uuid);
  return chosen;
}

std::vector<GpuUuid> gpus_seen(const Snapshot& state, const Placement& placement, const Demand& demand) {
  std::vector<GpuUuid> gpus;
  for (const GpuUuid& uuid : placement.gpus) {
    const Snapshot::Gpu* gpu = state.find(uuid);
    if (gpu != nullptr && serves(*gpu, demand) && gpus.size() < std::max(demand.gpus, 1u))
      gpus.push_back(uuid);
  }
  return gpus;
}

}  // namespace sharedgpu
