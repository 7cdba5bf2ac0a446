// SPDX-License-Identifier: Apache-2.0
// What a step holds and sees, as its environment says it: read from there as gres/sharedgpu and gres/gpu have
// set it, and written there for the interposer. In slurmstepd.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/settings.h"
#include "protocol/messages.h"
#include "spank/slurm.h"

namespace sharedgpu {

struct SlurmStep {
  StepName name;
  std::uint32_t uid = 0;
  std::uint32_t units = 0;
  DeviceSet devices;               // that the units stand for
  std::optional<DeviceSet> whole;  // the GPUs of gres/gpu that it holds beside them; nothing: not by numbers
};

SlurmStep read_step(spank_t spank);

// Empty where there is none.
std::string get_variable(spank_t spank, const char* name);

// Removes what was meant for the step that this one was started from; of a step without units, all of ours.
void remove_leaked(spank_t spank, bool has_units);

// What the interposer is loaded by and needs to know.
void set_environment(spank_t spank, const Settings& settings);

// The GPUs that the arbiter has chosen, and the part of their threads that the step may use.
void show_gpus(spank_t spank, const SlurmStep& step, const Settings& settings, const RegisterReply& reply);
// The arbiter does not know the step, and will not: it has none of the shared GPUs with OnNoArbiter=fail,
// else the use of them that plain CUDA gives.
void show_without_arbiter(spank_t spank, const SlurmStep& step, const Settings& settings);

// As the user, in the task's own process, with its stderr. `deadline`: zero for none.
void set_task_environment(spank_t spank, Nanoseconds deadline);

}  // namespace sharedgpu
