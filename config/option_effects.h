// SPDX-License-Identifier: Apache-2.0
// Finds the options of a job that have no effect, or less effect than requested, under the site's settings.
// The command that submits the job prints a line for each of these options; the job runs nevertheless. The
// command may not know the job's partition, QOS and GPU. So an option is reported only if it lacks its effect
// under all settings that may apply to the job.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_options.h"
#include "config/settings.h"

namespace sharedgpu {

// The facts that the submitting command knows about the job.
struct Submission {
  bool is_run = false;            // `sharedgpu run` submits it
  bool is_later_step = false;     // the command starts a step in a batch job with units, whose tenant exists
                                  // before the step
  bool lacks_last_step = false;   // the submitting command is a salloc whose shell is not a step of the job
  std::optional<bool> has_units;  // nullopt: unknown
  std::optional<std::string> partition;  // nullopt: unknown; empty: the job has none
  std::optional<std::string> qos;        // nullopt: unknown; empty: the job has none
};

// Returns a line for each option that lacks its effect. The line names the option, its value, the reason, and
// a setting or request with which the option would have an effect. `node`: the settings of the nodes; null if
// the command cannot read them.
std::vector<std::string> missing_effects(const GivenOptions& given, const Submission& submission,
                                         const Settings* node);

}  // namespace sharedgpu
