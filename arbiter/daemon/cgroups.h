// SPDX-License-Identifier: Apache-2.0
// The job, step and task that Slurm's cgroups and process titles name. Text only; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/host_memory.h"
#include "protocol/messages.h"

namespace sharedgpu {

// A step's folder as a line of a /proc/PID/cgroup names it. Whether Slurm made the folder, the text alone
// does not tell.
struct StepFolder {
  std::string controllers;           // of the hierarchy of v1, such as "memory"; empty: v2
  std::string path;                  // in the hierarchy, down to step_S
  std::optional<std::uint32_t> job;  // none: the folder names the job by SLUID
  std::uint32_t step = 0;
  bool operator==(const StepFolder&) const = default;
};

// The outermost step's folder in the path of that line. v1: .../slurm[_NODE]/uid_U/job_J/step_S; v2:
// .../[NODE_]slurmstepd.scope/job_J/step_S, where Slurm 26.05 has a SLUID instead of job_J unless
// CgroupJobIdPaths=yes.
std::optional<StepFolder> step_folder(std::string_view line);

// The task that it names, by its number on the node.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text);

// The group that a process's host memory is charged to, by the text of its /proc/PID/cgroup: its path in the
// hierarchy that has the memory controller, "" for the topmost. None: the text names no such hierarchy.
struct MemoryGroup {
  host_memory::Version version{};
  std::string path;
  bool operator==(const MemoryGroup&) const = default;
};
std::optional<MemoryGroup> memory_group(std::string_view text);

// The step that a folder "step_S" or "step_S+C" (a component of a heterogeneous job) is of.
std::optional<std::uint32_t> step_of_folder(std::string_view folder);

// The number before the dot in slurmstepd's title, "slurmstepd: [12.batch]".
std::optional<std::uint32_t> job_of_title(std::string_view title);

}  // namespace sharedgpu
