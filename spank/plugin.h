// SPDX-License-Identifier: Apache-2.0
// Declarations shared by SPANK's contexts. Each context has its own file. This list shows in which process
// and as which user the code of each file runs:
//
//   submission.cpp   srun, sbatch and salloc, as the user; they also offer the options (config/job_options.h)
//   step_memory.cpp  srun in a job, as the user
//   slurmd.cpp       slurmd, as root
//   remote.cpp       slurmstepd, as root
//   job_script.cpp   a short-lived `slurmstepd spank prolog` or `epilog`, as root, outside the job's cgroup
//
// No hook returns an error, because SPANK would fail the step or drain the node. There is one exception: at
// submission, a hook returns an error if an option has an invalid value.
#pragma once

#include <string>

#include "config/job_options.h"
#include "config/settings.h"
#include "spank/arguments.h"
#include "spank/slurm.h"

namespace sharedgpu {

// The options given on this process's command line.
GivenOptions& given_options();

void register_options(spank_t spank);

// Reads the plugin's arguments and its configuration, and logs an error in each of them. After an error in
// the configuration, `settings` has the defaults.
struct Configuration {
  Arguments arguments;
  Settings settings;
  bool good = false;  // true: neither the arguments nor the configuration have an error
};
Configuration configure(int count, char** arguments);

// Starts the arbiter unless an arbiter already listens on the socket. Logs a failure.
void ensure_arbiter(const Configuration& configuration, const std::vector<std::string>& environment);

void log_error(const std::string& message);

void local_init();
void local_init_post_opt();
void submission_init_post_opt(spank_t spank, int count, char** arguments);
void slurmd_init(int count, char** arguments);
void remote_init_post_opt(spank_t spank, int count, char** arguments);
void remote_task_init(spank_t spank);
void remote_task_post_fork(spank_t spank);
void remote_task_exit(spank_t spank);
void job_script_prolog(spank_t spank, int count, char** arguments);
void job_script_epilog(spank_t spank, int count, char** arguments);

}  // namespace sharedgpu
