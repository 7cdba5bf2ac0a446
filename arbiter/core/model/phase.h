// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace sharedgpu {

// The phases of a tenant: without leases, with leases, and the transitions between these.
enum class Phase : std::uint8_t {
  out,       // gates closed, all sessions drained: the tenant's memory may be evicted
  entering,  // chosen for the running set: the tenant's memory is being restored
  running,   // gates open
  leaving,   // gates closed, Revoke sent, waiting for every Released
};

}  // namespace sharedgpu
