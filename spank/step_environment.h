// SPDX-License-Identifier: Apache-2.0
// The environment of a step: reads the units and GPUs that gres/sharedgpu and gres/gpu have set there, and
// writes variables for the interposer. In slurmstepd.
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
  std::string types;  // types of the units, as in SHAREDGPU_UNIT_TYPES; empty if the units have no types, or
                      // unknown types
  DeviceSet devices;  // the GPUs that correspond to the units
  std::optional<DeviceSet>
      whole;  // the GPUs that the step holds through gres/gpu; nullopt if their numbers are unknown
};

SlurmStep read_step(spank_t spank);

// The job's array and its index in this array; zeros if the job is not an element of an array.
ArrayElement array_element_of(spank_t spank);

// Empty if unset.
std::string get_variable(spank_t spank, const char* name);

// Removes the interposer and its variables from this process's environment, which has them if a batch script
// with units has started this process. slurmstepd sets them again for a step with units. Slurm copies srun's
// environment into the configuration of a step's container before SPANK plugins in slurmstepd can change it,
// so srun has to remove them. Call this in srun, as the user.
void remove_inherited();

// Removes the inherited variables that were meant only for the step that started this step. For a step
// without units, also removes the interposer and its variables.
void remove_leaked(spank_t spank, bool has_units);

// Sets the variables that load and configure the interposer.
void set_environment(spank_t spank, const Settings& settings);

// Sets the variables for the GPUs that the arbiter has chosen, and for the part of the GPUs' threads that the
// step may use.
void show_gpus(spank_t spank, const SlurmStep& step, const Settings& settings, const RegisterReply& reply);
// Sets the GPUs of a step that could not be registered. With OnNoArbiter=fail, it gets no shared GPU;
// otherwise, it uses GPUs without sharing.
void show_without_arbiter(spank_t spank, const SlurmStep& step, const Settings& settings);

// Call this as the user, in the task's own process, with the task's stderr. `deadline` is zero if the job
// states none. `line` is for the job's stderr; empty if there is none.
void set_task_environment(spank_t spank, Nanoseconds deadline, const std::string& line);

}  // namespace sharedgpu
