// SPDX-License-Identifier: Apache-2.0
// The job, step and task that Slurm's cgroups and process titles name. Text only; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/messages.h"

namespace sharedgpu {

// The step that the text of a /proc/PID/cgroup names, in the forms of cgroup v1 and v2. Folders that a user
// can make (below user.slice, or below another job's) do not count.
std::optional<StepName> step_of_cgroup(std::string_view text);

// The task that it names, by its number on the node.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text);

// The step that a folder "step_S" or "step_S+C" (a component of a heterogeneous job) is of.
std::optional<std::uint32_t> step_of_folder(std::string_view folder);

// Slurm 26.05 with cgroup v2: .../[NODE_]slurmstepd.scope/SLUID/step_S, unless CgroupJobIdPaths=yes. The
// folder down to step_S, or nothing.
std::string sluid_folder(std::string_view path);

// The number before the dot in slurmstepd's title, "slurmstepd: [12.batch]".
std::optional<std::uint32_t> job_of_title(std::string_view title);

}  // namespace sharedgpu
