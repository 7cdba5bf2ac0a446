// SPDX-License-Identifier: Apache-2.0
// Which GPUs a tenant is placed on: those with the fewest units, then the least memory allocated, by
// tenants and unmanaged, then the fewest tenants, then the first in the host's order. GPUs that its sessions
// use already come before all others. GPUs whose device files the tenant's processes cannot open are none to
// them, nor are those that have failed; nobody comes to one that is drained. Pure: the same state gives the
// same answer.
//
// A tenant that is placed counts with its units on each of its GPUs; one that uses a GPU on which it was not
// placed counts there with one unit.
#pragma once

#include "arbiter/core/snapshot.h"

namespace sharedgpu {

// The demand of a tenant that is to be placed.
struct Demand {
  unsigned units = 1;      // in all; they are spread over its GPUs
  unsigned gpus = 1;       // distinct ones; it gets all there are where there are fewer
  DeviceSet devices = {};  // that its processes can open; empty: it is not known
};

// True if the tenant's processes can open the GPU. Only GPUs that the arbiter found itself count: if sessions
// alone report GPUs, there may be more of them.
bool is_open_to(const Snapshot::Gpu& gpu, const Demand& demand);

// True if a tenant that is placed there can use it.
bool serves(const Snapshot::Gpu& gpu, const Demand& demand);

// True if a tenant can be placed there.
bool takes(const Snapshot::Gpu& gpu, const Demand& demand);

// The GPUs chosen for the tenant, in the host's order. None: no GPU is open to it.
std::vector<GpuUuid> choose_gpus(const Snapshot& state, TenantId tenant, const Demand& demand);

// The GPUs of a tenant that processes with this demand get to know.
std::vector<GpuUuid> gpus_seen(const Snapshot& state, const Placement& placement, const Demand& demand);

// The units that a tenant counts with on each of its GPUs, rounded up.
constexpr unsigned units_on_each(unsigned units, std::size_t gpus) {
  const auto over = static_cast<unsigned>(gpus);
  return over == 0 ? units : units / over + (units % over != 0 ? 1 : 0);
}

}  // namespace sharedgpu
