// SPDX-License-Identifier: Apache-2.0
// Tells the arbiter of this node what a step holds, what its job asked for, and of the job's other nodes.
#pragma once

#include "config/settings.h"
#include "protocol/messages.h"
#include "spank/step_environment.h"

namespace sharedgpu {

// Waits a few seconds at most, then the job goes on without; a line in the log says why.
RegisterReply register_step(spank_t spank, const SlurmStep& step, const Settings& settings);

}  // namespace sharedgpu
