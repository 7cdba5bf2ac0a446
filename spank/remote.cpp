// SPDX-License-Identifier: Apache-2.0
// Unless a comment says otherwise, this code runs in slurmstepd, as root, after Slurm has parsed the options
// and before a task exists. For a step with sharedgpu units, prepares its environment and sends the job's
// options to the arbiter. For a step without units, removes the interposer and its variables from its
// environment.
#include <unistd.h>
#include <cerrno>
#include <cstring>

#include "protocol/step_names.h"
#include "slurm_shared/siblings.h"
#include "slurm_shared/step.h"
#include "spank/comment_marks.h"
#include "spank/container.h"
#include "spank/plugin.h"
#include "spank/registration.h"
#include "spank/step_environment.h"
#include "spank/summary.h"
#include "spank/suspension.h"

namespace sharedgpu {
namespace {

SharedGpuStep published;
std::string published_socket;
std::uint32_t tasks_ended = 0;

void publish(spank_t spank, const SlurmStep& step, const Settings& settings) {
  published_socket = settings.socket;
  published.job = step.name.job;
  published.step = step.name.step;
  published.socket = published_socket.c_str();
  published.units = step.units;
  spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &published.tasks);
}

}  // namespace

void remote_init_post_opt(spank_t spank, int count, char** arguments) {
  const SlurmStep step = read_step(spank);
  if (step.name.step == kExternStep)
    return;  // the extern step runs no program, and the GRES plugin does not set its environment
  remove_leaked(spank, step.units > 0);
  if (step.units == 0) return;
  Configuration configuration = configure(count, arguments);
  const Settings& settings = configuration.settings;
  plan_summary(spank, step, settings);
  if (std::string library = interposer_path(); access(library.c_str(), R_OK) != 0) {
    log_error(library + ": " + std::strerror(errno) + "; this step runs without GPU sharing");
    return show_without_arbiter(spank, step, settings);
  }
  set_environment(spank, settings);
  publish(spank, step, settings);
  mark_job(settings, step.name.job, step.name.step == kBatchStep);
  const RegisterReply reply = register_step(spank, step, settings);
  if (reply.accepted == 0) return show_without_arbiter(spank, step, settings);
  show_gpus(spank, step, settings, reply);
}

// Runs as the user, in the task's own process.
void remote_task_init(spank_t spank) {
  const bool has_units = published.units > 0;
  set_task_environment(spank, has_units ? given_options().job.deadline : Nanoseconds{},
                       has_units ? prepare_container(spank) : std::string());
}

// Runs as root, in slurmstepd, when all tasks have been forked. So no task is forked while a thread that this
// function has started is running.
void remote_task_post_fork(spank_t spank) {
  pid_t task = 0;
  if (published.units == 0 || spank_get_item(spank, S_TASK_PID, &task) != ESPANK_SUCCESS) return;
  watch_for_suspension({.job = published.job, .step = published.step}, published_socket, task);
}

// Runs as root, in slurmstepd, whenever a task has ended.
void remote_task_exit(spank_t spank) {
  std::uint32_t tasks = 0;
  spank_get_item(spank, S_JOB_LOCAL_TASK_COUNT, &tasks);
  if (++tasks_ended < tasks) return;
  pthread_mutex_lock(&published.asking);
  published.ended = true;
  pthread_mutex_unlock(&published.asking);
  if (published.units > 0) write_summary(spank, published_socket);
}

}  // namespace sharedgpu

extern "C" SharedGpuStep* sharedgpu_step() {
  return sharedgpu::published.units > 0 ? &sharedgpu::published : nullptr;
}
