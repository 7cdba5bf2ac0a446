// SPDX-License-Identifier: Apache-2.0
// The spool of what is to be written into AdminComments: a file for each job that has held units here, named
// by its number. comment/spool.h has the rest.
#pragma once

#include "spank/plugin.h"

namespace sharedgpu {

// As root, in slurmstepd. The first step of a run makes the file, and its time says when; a batch step is
// always the first of its run, also where the file of the run before is there still.
void mark_job(const Settings& settings, std::uint32_t job, bool begins);

bool has_mark(const Settings& settings, std::uint32_t job);
// Any, or anything else that is to be done.
bool has_marks(const Settings& settings);

// Starts sharedgpu-comment as a daemon: it works on the spool until that is empty. `ended` is the job that
// has ended here; 0: none. Where it is not installed, nothing happens.
void start_comment(const Configuration& configuration, std::uint32_t ended,
                   std::vector<std::string> environment);

}  // namespace sharedgpu
