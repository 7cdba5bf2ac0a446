// SPDX-License-Identifier: Apache-2.0
// Which partition and QOS Slurm has put a job into, and how often it was requeued. slurmd tells its prolog,
// which no user can speak for; the job's steps, whose environments are the user's, read it from a file beside
// the arbiter's socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/settings.h"

namespace sharedgpu {

// As root, in the prolog. Releases before 26.05 do not tell the QOS: squeue is asked for it, with slurmd's
// `environment`, where a section of sharedgpu.conf is about one.
void keep_job_class(const Settings& settings, std::uint32_t job, const std::vector<std::string>& environment);
// As root, in slurmstepd. Empty where the prolog did not run, or could not tell.
JobClass read_job_class(const Settings& settings, std::uint32_t job);
// In the epilog. A file that no epilog removes goes after thirty days without a step of the job.
void forget_job_class(const Settings& settings, std::uint32_t job);

}  // namespace sharedgpu
