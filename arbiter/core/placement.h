// SPDX-License-Identifier: Apache-2.0
// The choice of GPUs for a tenant. GPUs that the tenant's sessions already use come first. Among the other
// GPUs, the GPU with the fewest units in use comes first. Of GPUs with equally many units, the GPU with the
// least allocated memory (of tenants and unmanaged) comes first, then the GPU with the fewest tenants, then
// the first GPU in the host's order. A tenant is never placed on a GPU that has failed or whose device file
// its processes cannot open. No new tenant is placed on a drained GPU. Pure.
//
// On each GPU of its placement, a tenant adds its units (units_on_each()) to the GPU's load. On a GPU that a
// tenant uses without being placed there, the tenant adds one unit.
#pragma once

#include "arbiter/core/snapshot.h"

namespace sharedgpu {

// The request of a tenant that is to be placed.
struct Demand {
  unsigned units = 1;      // total number of units, which are spread over the tenant's GPUs
  unsigned gpus = 1;       // number of GPUs; if the host has fewer, the tenant gets all of them
  DeviceSet devices = {};  // the devices that the tenant's processes can open; empty: unknown
};

// Returns true if the tenant's processes can open the GPU. Call only if the arbiter itself has found the
// host's GPUs; sessions report only some of them.
bool is_open_to(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns true if a tenant with this demand that was placed on the GPU earlier can still use it.
bool serves(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns true if a new tenant with this demand can be placed on the GPU.
bool takes(const Snapshot::Gpu& gpu, const Demand& demand);

// Returns the GPUs chosen for the tenant, in the host's order; empty if the tenant can be placed on no GPU.
std::vector<GpuUuid> choose_gpus(const Snapshot& state, TenantId tenant, const Demand& demand);

// Returns the tenant's GPUs that processes with this demand can open.
std::vector<GpuUuid> gpus_seen(const Snapshot& state, const Placement& placement, const Demand& demand);

// Returns the number of units that a tenant adds to the load of each of its GPUs, rounded up.
constexpr unsigned units_on_each(unsigned units, std::size_t gpus) {
  const auto over = static_cast<unsigned>(gpus);
  return over == 0 ? units : units / over + (units % over != 0 ? 1 : 0);
}

}  // namespace sharedgpu
