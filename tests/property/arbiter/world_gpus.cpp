// SPDX-License-Identifier: Apache-2.0
// GPUs of the simulation that fail, are lost, return and are drained, and the tenants that are placed on
// them.
#include <algorithm>
#include <set>

#include "world_client.h"

namespace sharedgpu::test {

// A lost GPU mostly returns soon, and a drained GPU is undrained after a while.
void World::change_gpu() {
  if (winding_down_) return;
  at(now() + delay(1500), [this] { change_gpu(); });
  const unsigned gpu = random(0, scenario_.gpus - 1);
  GpuState& its = gpus_[gpu];
  switch (random(0, 4)) {
    case 0:
      its.condition = GpuCondition::lost;
      break;
    case 1:
      if (its.condition == GpuCondition::healthy) its.condition = GpuCondition::failing;
      break;
    case 2:
      its.drained = !its.drained;
      break;
    default:
      its.condition = GpuCondition::healthy;
  }
  ++tally_.gpu_changes;
  if (its.condition == GpuCondition::healthy) find_gpu(gpu, false);
  tell_of_gpu(gpu);
}

void World::tell_of_gpu(unsigned gpu) {
  tell(GpuChanged{.gpu = uuids_[gpu], .condition = gpus_[gpu].condition});
  tell(GpuDrained{.gpu = uuids_[gpu], .drained = gpus_[gpu].drained});
}

// The GPU for a new process of the tenant, or none.
std::optional<unsigned> World::place(TenantId tenant) {
  const bool lives = std::any_of(clients_.begin(), clients_.end(),
                                 [&](const auto& entry) { return entry.second->tenant == tenant; });
  if (!lives && random(0, 1) == 0) tell(Unplace{.tenant = tenant});
  const auto before = core_->snapshot().placements;
  const Demand demand{.gpus = random(1, 2)};
  tell(Place{.tenant = tenant, .demand = demand});
  const Snapshot state = core_->snapshot();
  const auto placed = state.placements.find(tenant);
  if (placed == state.placements.end()) return std::nullopt;
  std::set<GpuUuid> had;
  if (const auto past = before.find(tenant); past != before.end())
    had.insert(past->second.gpus.begin(), past->second.gpus.end());
  std::set<GpuUuid> distinct;
  for (const GpuUuid& uuid : placed->second.gpus) {
    const auto number =
        static_cast<std::size_t>(std::find(uuids_.begin(), uuids_.end(), uuid) - uuids_.begin());
    must(distinct.insert(uuid).second, "a tenant is placed twice on one GPU");
    if (had.count(uuid) != 0) continue;
    must(gpus_[number].takes(), "a tenant is placed on a GPU that takes none");
    tally_.displaced += had.empty() ? 0 : 1;
  }
  const std::vector<GpuUuid> seen = gpus_seen(state, placed->second, demand);
  if (seen.empty()) return std::nullopt;
  const GpuUuid& chosen = seen[random(0, static_cast<unsigned>(seen.size()) - 1)];
  const auto gpu = static_cast<unsigned>(std::find(uuids_.begin(), uuids_.end(), chosen) - uuids_.begin());
  must(gpus_[gpu].condition == GpuCondition::healthy, "a process is shown a GPU that has failed");
  return gpu;
}

// The process gets the driver's error and ends; its tenant starts another process.
void World::lose(Client& client) {
  must(gpus_[client.gpu].condition == GpuCondition::lost, "a session on a working GPU was dropped");
  ++tally_.lost_sessions;
  const TenantId tenant = client.tenant;
  at(now() + delay(100), [this, id = client.id, life = life_] {
    if (life == life_) tell(SessionGone{.session = id});
  });
  at(now() + delay(2000), [this, tenant] { arrive(tenant, 0); });
  clients_.erase(SessionId(client.key));
  for (auto& [key, other] : clients_)
    if (other->tenant == tenant) complete(*other);
}

// Checks that no session is on a lost GPU, and that no lease on a lost GPU is held.
void World::check_gpus(const Snapshot& state) {
  for (std::size_t i = 0; i < uuids_.size(); ++i) {
    const Snapshot::Gpu* gpu = state.find(uuids_[i]);
    if (gpus_[i].condition != GpuCondition::lost) continue;
    must(gpu == nullptr || gpu->sessions.empty(), "a session on a GPU that is lost");
    for (const auto& [key, lease] : core_->leases().open())
      must(key.gpu != uuids_[i] || core_->in_grace(), "a lease on a GPU that is lost");
  }
}

}  // namespace sharedgpu::test
