// SPDX-License-Identifier: Apache-2.0
// Steps in containers. The loader complains at each command about an LD_PRELOAD whose library the container
// lacks, so such a step gets no LD_PRELOAD, and a line on stderr says that it runs without GPU sharing.
#pragma once

#include <string>

#include "spank/slurm.h"

namespace sharedgpu {

// Prepares a task of a step with units, after other plugins (such as pyxis) have moved the task into its
// container. Returns an empty string, or a line for the job's stderr. In slurmstepd, as the user, in the
// task's own process.
std::string prepare_container(spank_t spank);

}  // namespace sharedgpu
