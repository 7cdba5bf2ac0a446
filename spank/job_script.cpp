// SPDX-License-Identifier: Apache-2.0
// `slurmstepd spank prolog`, as root, before a job's first step on the node: starts the arbiter if there is
// none, for instance because somebody stopped it. There is nothing to do in the epilog: the arbiter sees the
// job's processes end.
#include <unistd.h>

#include "spank/plugin.h"
#include "spank/supervisor.h"

namespace sharedgpu {

void job_script_prolog(int count, char** arguments) {
  Configuration configuration = configure(count, arguments);
  if (!configuration.good) return;
  // Slurm gives this process an environment made for the job. The arbiter gets that of slurmd, its parent.
  ensure_arbiter(configuration, environment_of(getppid()));
}

}  // namespace sharedgpu
