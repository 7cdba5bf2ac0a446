// SPDX-License-Identifier: Apache-2.0
// The line about a job's use of the GPU that the job's last step writes to its stderr, see Summary= in
// sharedgpu.conf(5). In slurmstepd.
//
// The last step of a job is its batch step or its interactive step. If srun itself has made the job, the last
// step is the step of this srun. The steps of a salloc without interactive step write no line, since any of
// them may be the last one. A job on several nodes writes one line, on its first node and about that node.
#pragma once

#include <string>

#include "spank/step_environment.h"

namespace sharedgpu {

// In srun, as the user: notes in the environment whether this srun makes the job itself.
void note_job_of_srun(bool makes_job);

// Call before the first task starts. Notes whether this step is to write the line, and removes the note of
// note_job_of_srun() from the environment.
void plan_summary(spank_t spank, const SlurmStep& step, const Settings& settings);

// Call when the last task of the step has ended. Waits at most two seconds for the arbiter.
void write_summary(spank_t spank, const std::string& socket);

}  // namespace sharedgpu
