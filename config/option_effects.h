// SPDX-License-Identifier: Apache-2.0
// The options of a job that have no effect, or less than stated, where they are given. The user is told so at
// submission; the job goes on. Only what is certain is reported: a job's partition, QOS and GPU may not be
// known yet, so an option has an effect if it has one under any settings that may apply to the job.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/job_options.h"
#include "config/settings.h"

namespace sharedgpu {

// What the command knows about the job that it submits.
struct Submission {
  bool is_run = false;                   // by `sharedgpu run`
  bool is_later_step = false;            // of a batch job with units: its tenant exists
  std::optional<bool> has_units;         // nullopt: unknown
  std::optional<std::string> partition;  // nullopt: unknown; empty: none
  std::optional<std::string> qos;        // the same
};

// Returns a line for each such option, which names the option, its value, the reason, and what would have an
// effect. `node`: the settings of the nodes; null if the command cannot read them.
std::vector<std::string> missing_effects(const GivenOptions& given, const Submission& submission,
                                         const Settings* node);

}  // namespace sharedgpu
