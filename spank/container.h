// SPDX-License-Identifier: Apache-2.0
// Steps in containers. If a container lacks the interposer, the loader prints an error about LD_PRELOAD at
// each command. In such a container, the step's LD_PRELOAD does not have the interposer, and a line on stderr
// tells the user that the container runs without GPU sharing.
#pragma once

#include <string>

#include "spank/slurm.h"

namespace sharedgpu {

// Prepares a task of a step with units, after other plugins (such as pyxis) have moved the task into its
// container. Returns an empty string, or a line for the job's stderr. Call this in slurmstepd, as the user,
// in the task's own process.
std::string prepare_container(spank_t spank);

}  // namespace sharedgpu
