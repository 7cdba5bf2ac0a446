// SPDX-License-Identifier: Apache-2.0
// The partition and QOS of a job, and how often it was requeued. slurmd passes them to the prolog, whose
// environment no user can forge. Users control the environments of steps. So the prolog stores partition, QOS
// and number of requeues in a file below the folder of the arbiter's socket, and the job's steps read it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

namespace sharedgpu {

// Call this as root, in the prolog. Releases of Slurm before 26.05 do not pass the QOS to the prolog. In this
// case, this function asks squeue for the job's QOS, with the PATH of slurmd's `environment`, but only if a
// section of sharedgpu.conf is about a QOS.
void keep_job_class(const Settings& settings, std::uint32_t job, const std::vector<std::string>& environment);
// Call this as root, in slurmstepd. Returns an empty class if the prolog did not run or found no class.
JobClass read_job_class(const Settings& settings, std::uint32_t job);
// Removes the file with the job's class. Call this in the epilog. If the epilog does not run, a later prolog
// removes the file after thirty days without a step of the job.
void forget_job_class(const Settings& settings, std::uint32_t job);

}  // namespace sharedgpu
