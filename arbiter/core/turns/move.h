// SPDX-License-Identifier: Apache-2.0
// A transition from one running set to the next: the tenants that leave, and the tenant that enters. The
// planner makes Moves, and the core carries them out.
#pragma once

#include <optional>
#include <vector>

#include "arbiter/core/model/model.h"

namespace sharedgpu {

struct Move {
  struct Leave {
    const Tenant* tenant = nullptr;
    bool for_idleness = false;  // the tenant leaves because it is idle, and does not ask for the GPU
    // If the tenant is preempted: the used part of its turn. The tenant gets the rest of the turn later.
    std::optional<Nanoseconds> preempted_after = {};
  };
  std::vector<Leave> leave;  // the tenants that leave, in this order
  const Tenant* enter = nullptr;
  bool leads = false;     // the next turn begins for this tenant
  bool preempts = false;  // the entering tenant preempts a turn
  bool for_host = false;  // the entry is a recall (scheduler.h)
  Nanoseconds price{};    // GPU time that is charged to the entering tenant's account
};

}  // namespace sharedgpu
