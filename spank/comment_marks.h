// SPDX-License-Identifier: Apache-2.0
// For each job that has held units on this node, creates a file in the spool of pending AdminComments. This
// file is the job's mark, and its name is the job's number. The comment in comment/spool.h describes the
// other files of the spool.
#pragma once

#include "spank/plugin.h"

namespace sharedgpu {

// Call this as root, in slurmstepd. In the first step of a run of the job, this function creates the job's
// mark. The timestamp of the mark is the start of the run. `begins` is true for a batch step, which is always
// the first step of its run. The function then sets the timestamp to the present even if the mark of the
// previous run still exists.
void mark_job(const Settings& settings, std::uint32_t job, bool begins);

bool has_mark(const Settings& settings, std::uint32_t job);
// Returns true if the spool has a mark or an entry.
bool has_marks(const Settings& settings);

// Starts sharedgpu-comment as a daemon that processes the spool until it has no entries. `ended` is the job
// that has ended on this node; 0 if no job has ended. Does nothing if sharedgpu-comment is not installed, if
// AdminComment=no, or if the configuration has errors.
void start_comment(const Configuration& configuration, std::uint32_t ended,
                   std::vector<std::string> environment);

}  // namespace sharedgpu
