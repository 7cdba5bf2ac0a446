// SPDX-License-Identifier: Apache-2.0
// What the contexts share. Each context is a file of its own, so that a reader always knows in which process
// and as whom a line runs; srun, sbatch and salloc, as the user, only offer the options (options.h):
//
//   slurmd.cpp      slurmd, as root
//   remote.cpp      slurmstepd, as root
//   job_script.cpp  a short-lived `slurmstepd spank prolog` or `epilog`, as root, outside the job's cgroup
//
// No hook returns an error, whatever happens: SPANK would fail the step or drain the node for it. The one
// exception is an option's bad value at submission.
#pragma once

#include <string>

#include "config/settings.h"
#include "spank/arguments.h"
#include "spank/options.h"
#include "spank/slurm.h"

namespace sharedgpu {

// What the user asked for on the command line, in this process.
JobOptions& given_options();

void register_options(spank_t spank);

// Reads the plugin's arguments and its configuration. Logs what is wrong with them, in which case the
// defaults stand in.
struct Configuration {
  Arguments arguments;
  Settings settings;
  bool good = false;
};
Configuration configure(int count, char** arguments);

// Starts the arbiter unless one listens already. Logs a failure.
void ensure_arbiter(const Configuration& configuration, const std::vector<std::string>& environment);

void log_error(const std::string& message);

void slurmd_init(int count, char** arguments);
void remote_init_post_opt(spank_t spank, int count, char** arguments);
void remote_task_init(spank_t spank);
void remote_task_post_fork(spank_t spank);
void remote_task_exit(spank_t spank);
void job_script_prolog(spank_t spank, int count, char** arguments);
void job_script_epilog(spank_t spank, int count, char** arguments);

}  // namespace sharedgpu
