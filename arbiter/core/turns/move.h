// SPDX-License-Identifier: Apache-2.0
// One step from a running set to the next: who leaves, and who enters for them. The scheduler makes Moves,
// the core has them carried out.
#pragma once

#include <optional>
#include <vector>

#include "arbiter/core/model/model.h"

namespace sharedgpu {

struct Move {
  struct Leave {
    const Tenant* tenant = nullptr;
    bool for_idleness = false;  // it has nothing to do, and has not asked for the GPU again
    // Its turn was preempted after so long: the rest is still to come.
    std::optional<Nanoseconds> preempted_after = {};
  };
  std::vector<Leave> leave;  // in this order
  const Tenant* enter = nullptr;
  bool leads = false;     // a turn begins for it
  bool preempts = false;  // it ends another's turn before that is over
  bool for_host = false;  // for the host memory of what it has evicted
  Nanoseconds price{};    // its account pays for that
};

}  // namespace sharedgpu
