// SPDX-License-Identifier: Apache-2.0
// `slurmstepd spank prolog`, as root, before a job's first step on the node: starts the arbiter if none runs,
// and stores the class of the job for its steps.
// `slurmstepd spank epilog`, after the job's last process has ended: reports the end of the run to the
// arbiter, and starts the program that writes the run's AdminComment.
#include <unistd.h>

#include "protocol/ask.h"
#include "spank/comment_marks.h"
#include "spank/job_class.h"
#include "spank/plugin.h"
#include "spank/supervisor.h"

namespace sharedgpu {

void job_script_prolog(spank_t spank, int count, char** arguments) {
  Configuration configuration = configure(count, arguments);
  if (!configuration.good) return;
  // Slurm has made this process's environment for the job. So the arbiter gets the environment of slurmd, the
  // parent of this process.
  const std::vector<std::string> environment = environment_of(getppid());
  ensure_arbiter(configuration, with_node_name(environment, command_line_of(getppid())));
  std::uint32_t job = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) == ESPANK_SUCCESS)
    keep_job_class(configuration.settings, job, environment);
}

void job_script_epilog(spank_t spank, int count, char** arguments) {
  std::uint32_t job = 0;
  if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS) return;
  Configuration configuration = configure(count, arguments);
  forget_job_class(configuration.settings, job);
  // The answer is not used. If EndJob does not arrive, the arbiter recognizes the job's next run by the
  // prolog of the run or by the numbers of its steps.
  Message answer;
  ask(configuration.settings.socket.c_str(), Message::of(EndJob{.job = job}), std::chrono::seconds(2),
      answer);
  if (!has_mark(configuration.settings, job)) return;
  start_comment(configuration, job, environment_of(getppid()));
}

}  // namespace sharedgpu
