// SPDX-License-Identifier: Apache-2.0
// What this slurmstepd's step holds, for the accounting plugin that is loaded into the same process.
#pragma once

#include <pthread.h>

#include <cstdint>

extern "C" {

struct SharedGpuStep {
  std::uint32_t job = 0;
  std::uint32_t step = 0;  // as slurm_step_id_t has it
  std::uint32_t units = 0;
  std::uint32_t tasks = 0;       // of the step on this node; 0: not known
  const char* socket = nullptr;  // of the arbiter

  // Held while Slurm is asked about the step's tasks. Once `ended`, which it guards, it must not be asked any
  // more: it would complain in the job's own output.
  pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
  bool ended = false;
};

// Null where the step holds no units. Set before the first task starts; valid for the life of the process.
// Exported by spank_sharedgpu.so.
using SharedGpuStepFunction = SharedGpuStep*();
__attribute__((visibility("default"))) SharedGpuStepFunction sharedgpu_step;
}
