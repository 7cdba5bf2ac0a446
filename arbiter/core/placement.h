// SPDX-License-Identifier: Apache-2.0
// Chooses GPUs for a tenant, in the following order. GPUs that sessions of the tenant use come before all
// others. Then GPUs with fewer units in use by other tenants come first. Of GPUs with equally many units in
// use, the GPU with the least memory in use (by other tenants, and unmanaged memory) comes first, then the
// GPU with the fewest other tenants, then the first GPU in the host's order. A tenant is never placed on a
// GPU that has failed, that is drained, that the arbiter knows only from sessions, or whose device file the
// tenant's processes cannot open. A tenant that was placed on a GPU before the GPU was drained stays there.
// Pure.
//
// Units in use: each tenant placed on a GPU counts with its units there (units_on_each()), and each tenant
// that uses the GPU without being placed on it counts as one unit.
#pragma once

#include "arbiter/core/snapshot.h"

namespace sharedgpu {

// The request of a tenant that is to be placed.
struct Demand {
  unsigned units = 1;      // total number of units, which are spread over the tenant's GPUs
  unsigned gpus = 1;       // number of GPUs; if the tenant can be placed on fewer, it gets all of these
  DeviceSet devices = {};  // the devices that the tenant's processes can open; empty: unknown
};

// Returns true if the tenant's processes can open the GPU, or if it is unknown whether they can. False if the
// arbiter knows the GPU only from sessions, since sessions may report only some of the host's GPUs.
bool is_open_to(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns true if a tenant with this demand that was placed on the GPU earlier can still use it.
bool serves(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns true if a new tenant with this demand can be placed on the GPU.
bool takes(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns the GPUs chosen for the tenant, in the host's order; empty if the tenant can be placed on no GPU.
std::vector<GpuUuid> choose_gpus(const Snapshot& state, TenantId tenant, const Demand& demand);

// Returns those GPUs of the placement that are healthy and that processes with this demand can open,
// `demand.gpus` at most.
std::vector<GpuUuid> gpus_seen(const Snapshot& state, const Placement& placement, const Demand& demand);

// Returns the number of units with which a tenant counts on each of its `gpus` GPUs, rounded up.
constexpr unsigned units_on_each(unsigned units, std::size_t gpus) {
  const auto over = static_cast<unsigned>(gpus);
  return over == 0 ? units : units / over + (units % over != 0 ? 1 : 0);
}

}  // namespace sharedgpu
