// SPDX-License-Identifier: Apache-2.0
// `slurmstepd spank prolog`, as root, before a job's first step on the node: starts the arbiter if there is
// none, for instance because somebody stopped it, and keeps what the job's steps will have to tell of it. And
// `slurmstepd spank epilog`, when all of the job's processes are gone: tells that its run is over, and has
// its AdminComment written.
#include <unistd.h>

#include "protocol/ask.h"
#include "spank/comments.h"
#include "spank/job_class.h"
#include "spank/plugin.h"
#include "spank/supervisor.h"

namespace sharedgpu {

void job_script_prolog(spank_t spank, int count, char** arguments) {
  Configuration configuration = configure(count, arguments);
  if (!configuration.good) return;
  // Slurm gives this process an environment made for the job. The arbiter gets that of slurmd, its parent.
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
  Message answer;  // where nobody hears it the next run is told apart by the prolog, or the numbers of steps
  ask(configuration.settings.socket.c_str(), Message::of(EndJob{.job = job}), std::chrono::seconds(2),
      answer);
  if (!has_mark(configuration.settings, job)) return;
  start_comment(configuration, job, environment_of(getppid()));
}

}  // namespace sharedgpu
