// SPDX-License-Identifier: Apache-2.0
// Registers a step with this node's arbiter: its units, the options of its job, and the first node and number
// of nodes of a job that has several.
#pragma once

#include "config/settings.h"
#include "protocol/messages.h"
#include "spank/step_environment.h"

namespace sharedgpu {

// Waits for the arbiter for at most a few seconds. On failure, logs the reason and returns a reply with
// `accepted` zero; the job then runs without registration.
RegisterReply register_step(spank_t spank, const SlurmStep& step, const Settings& settings);

}  // namespace sharedgpu
