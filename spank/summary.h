// SPDX-License-Identifier: Apache-2.0
// Writes the line about a job's use of the GPU to the stderr of the job's last step, see Summary= in
// sharedgpu.conf(5). In slurmstepd.
//
// The last step of a job is its batch step or its interactive step. If srun itself has made the job, the last
// step is the step of this srun. In a salloc without an interactive step, no step writes the line, since any
// step may be the last step. A job on several nodes writes one line, on its first node and about this node.
#pragma once

#include <string>

#include "spank/step_environment.h"

namespace sharedgpu {

// Called in srun, as the user. Stores in the environment whether this srun creates the job itself.
void note_job_of_srun(bool makes_job);

// Call before the first task starts. Determines whether this step has to write the line, and removes the
// variable of note_job_of_srun() from the environment.
void plan_summary(spank_t spank, const SlurmStep& step, const Settings& settings);

// Call when the last task of the step has ended. Waits at most two seconds for the arbiter. If neither the
// site nor the job has requested the line, does not wait for an arbiter that is starting.
void write_summary(spank_t spank, const std::string& socket);

}  // namespace sharedgpu
