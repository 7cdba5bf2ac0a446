// SPDX-License-Identifier: Apache-2.0
// The step of this slurmstepd, for the accounting plugin in the same process.
#pragma once

#include <pthread.h>

#include <cstdint>

extern "C" {

struct SharedGpuStep {
  std::uint32_t job = 0;
  std::uint32_t step = 0;  // number as in slurm_step_id_t
  std::uint32_t units = 0;
  std::uint32_t tasks = 0;       // number of the step's tasks on this node; 0 if unknown
  const char* socket = nullptr;  // path of the arbiter's socket

  // This mutex is held during queries to Slurm about the step's tasks, and guards `ended`. No query is
  // permitted once `ended` is set: Slurm would then write an error message into the job's output.
  pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
  bool ended = false;
};

// Returns null if the step holds no units. The result is set before the first task starts, and stays valid
// until the process ends. Exported by spank_sharedgpu.so.
using SharedGpuStepFunction = SharedGpuStep*();
__attribute__((visibility("default"))) SharedGpuStepFunction sharedgpu_step;
}
