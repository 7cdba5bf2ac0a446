// SPDX-License-Identifier: Apache-2.0
// A thread of slurmstepd that notifies the arbiter when Slurm suspends the step (and every five seconds while
// the step is suspended), and when Slurm resumes it.
//
// In a suspension (22.05 to 26.05) Slurm first pauses its own accounting, then sends the tasks SIGTSTP, and
// two seconds later freezes all processes. In these two seconds the step's processes can evict their memory
// if they are notified. But SIGTSTP stops most programs that srun has started, and so prevents the eviction.
// So if Slurm freezes processes (proctrack/cgroup), this thread sends SIGCONT to the stopped tasks, and they
// run until Slurm freezes them. This thread sends no SIGCONT to programs that handle SIGTSTP or SIGCONT.
#pragma once

#include <sys/types.h>

#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// Adds a task of the step. The first call starts the thread, which ends with slurmstepd.
void watch_for_suspension(const StepName& step, const std::string& socket, pid_t task);

}  // namespace sharedgpu
