// SPDX-License-Identifier: Apache-2.0
// A transition from one running set to the next: the tenants that leave, and the one that enters for them.
// The scheduler makes Moves, the core carries them out.
#pragma once

#include <optional>
#include <vector>

#include "arbiter/core/model/model.h"

namespace sharedgpu {

struct Move {
  struct Leave {
    const Tenant* tenant = nullptr;
    bool for_idleness = false;  // it leaves because it has nothing to do, and has not asked for the GPU again
    // Set if its turn was preempted: the part that it had used. The rest is still to come.
    std::optional<Nanoseconds> preempted_after = {};
  };
  std::vector<Leave> leave;  // in this order
  const Tenant* enter = nullptr;
  bool leads = false;     // a turn begins for it
  bool preempts = false;  // it preempts a turn
  bool for_host = false;  // a recall: it enters because its evicted memory takes host memory
  Nanoseconds price{};    // charged to its account
};

}  // namespace sharedgpu
