// SPDX-License-Identifier: Apache-2.0
// A thread of slurmstepd that tells the arbiter when Slurm suspends and resumes the step.
//
// A suspension (22.05 to 26.05) begins with Slurm's own accounting, which is told to rest. Then the tasks are
// sent SIGTSTP, and two seconds later all processes are frozen. So for these two seconds the step can let go
// of the GPU, if it is told. SIGTSTP alone stops most programs that srun started, and they could not: where
// the freezer is to follow, they are let go on until then. A program that handles the signal has its own
// plans and is left alone.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// Adds a task of the step; the thread begins with the first. It ends with slurmstepd.
void watch_for_suspension(const StepName& step, const std::string& socket, pid_t task);

}  // namespace sharedgpu
