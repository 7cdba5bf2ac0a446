// SPDX-License-Identifier: Apache-2.0
// The hooks that Slurm calls. Each hook calls the function for the context of this process.
#include <exception>

#include "spank/plugin.h"
#include "spank/step_environment.h"

// In C++, a const at namespace scope is local to its file unless it was first declared extern.
#pragma GCC visibility push(default)
extern "C" {
extern const char plugin_name[];
extern const char plugin_type[];
extern const unsigned int plugin_version;
extern const unsigned int spank_plugin_version;
SPANK_PLUGIN(sharedgpu, 1)
}
#pragma GCC visibility pop

namespace sharedgpu {
namespace {

// No exception may reach Slurm, and no hook may fail the job.
template <class Action>
int guarded(Action action) noexcept {
  try {
    action();
  } catch (const std::exception& error) {
    slurm_error("sharedgpu: %s", error.what());
  } catch (...) {
    slurm_error("sharedgpu: unknown error");
  }
  return ESPANK_SUCCESS;
}

}  // namespace
}  // namespace sharedgpu

using namespace sharedgpu;

extern "C" int slurm_spank_init(spank_t spank, int count, char* arguments[]) {
  return guarded([&] {
    switch (spank_context()) {
      case S_CTX_LOCAL:  // Slurm sends the options to slurmstepd in the launch message
        local_init();
        return register_options(spank);
      case S_CTX_ALLOCATOR:  // Slurm passes the options in the job's environment
      case S_CTX_REMOTE:
        return register_options(spank);
      case S_CTX_SLURMD:
        return slurmd_init(count, arguments);
      case S_CTX_JOB_SCRIPT:
      case S_CTX_ERROR:
        return;
    }
  });
}

extern "C" int slurm_spank_init_post_opt(spank_t spank, int count, char* arguments[]) {
  return guarded([&] {
    switch (spank_context()) {
      case S_CTX_LOCAL:
        local_init_post_opt();
        remove_inherited();
        return submission_init_post_opt(spank, count, arguments);
      case S_CTX_ALLOCATOR:
        return submission_init_post_opt(spank, count, arguments);
      case S_CTX_REMOTE:
        return remote_init_post_opt(spank, count, arguments);
      case S_CTX_SLURMD:
      case S_CTX_JOB_SCRIPT:
      case S_CTX_ERROR:
        return;
    }
  });
}

// Slurm calls the following three hooks of tasks only in slurmstepd.
extern "C" int slurm_spank_task_init(spank_t spank, int, char*[]) {
  return guarded([&] { remote_task_init(spank); });
}

extern "C" int slurm_spank_task_post_fork(spank_t spank, int, char*[]) {
  return guarded([&] { remote_task_post_fork(spank); });
}

extern "C" int slurm_spank_task_exit(spank_t spank, int, char*[]) {
  return guarded([&] { remote_task_exit(spank); });
}

extern "C" int slurm_spank_job_prolog(spank_t spank, int count, char* arguments[]) {
  return guarded([&] { job_script_prolog(spank, count, arguments); });
}

extern "C" int slurm_spank_job_epilog(spank_t spank, int count, char* arguments[]) {
  return guarded([&] { job_script_epilog(spank, count, arguments); });
}
