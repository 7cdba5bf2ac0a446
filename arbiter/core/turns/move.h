// SPDX-License-Identifier: Apache-2.0
// A transition from one running set to the next: the tenants that leave, and the one that enters for them.
// The planner makes Moves, and the core carries them out.
#pragma once

#include <optional>
#include <vector>

#include "arbiter/core/model/model.h"

namespace sharedgpu {

struct Move {
  struct Leave {
    const Tenant* tenant = nullptr;
    bool for_idleness = false;  // it leaves because it has nothing to do, and has not asked for the GPU again
    // Set if its turn was preempted: the used part of the turn. The tenant gets the rest later.
    std::optional<Nanoseconds> preempted_after = {};
  };
  std::vector<Leave> leave;  // in this order
  const Tenant* enter = nullptr;
  bool leads = false;     // the next turn begins for this tenant
  bool preempts = false;  // it preempts a turn
  bool for_host = false;  // a recall: it enters because its evicted memory takes host memory
  Nanoseconds price{};    // GPU time that is charged to its account
};

}  // namespace sharedgpu
