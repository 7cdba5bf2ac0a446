// SPDX-License-Identifier: Apache-2.0
// Parses the names of jobs, steps and tasks in Slurm's cgroups and process titles. The functions read no
// files. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/host_memory.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The cgroup folder of a Slurm step, parsed from a line of /proc/PID/cgroup. The line does not prove that
// Slurm made the folder: users can create folders with such names.
struct StepFolder {
  std::string controllers;           // the controller of a v1 hierarchy, such as "memory"; empty: v2
  std::string path;                  // path in the hierarchy, down to the folder step_S
  std::optional<std::uint32_t> job;  // nullopt: the folder names the job by SLUID
  std::uint32_t step = 0;
  bool operator==(const StepFolder&) const = default;
};

// Returns the outermost step folder in the path of the line. The paths are
// .../slurm[_NODE]/uid_U/job_J/step_S in v1 and .../[NODE_]slurmstepd.scope/job_J/step_S in v2. Slurm 26.05
// has a SLUID instead of job_J in v2, unless CgroupJobIdPaths=yes.
std::optional<StepFolder> step_folder(std::string_view line);

// Returns the node-local number of the Slurm task that a line of /proc/PID/cgroup names.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text);

// The cgroup to which a process's host memory is charged. `path` is the group's path in the hierarchy with
// the memory controller, "" for the root. memory_group() reads the text of the process's /proc/PID/cgroup,
// and returns nullopt if the text has neither a line of cgroup v2 nor a v1 line that lists the memory
// controller.
struct MemoryGroup {
  host_memory::Version version{};
  std::string path;
  bool operator==(const MemoryGroup&) const = default;
};
std::optional<MemoryGroup> memory_group(std::string_view text);

// Returns the step of a folder named "step_S" or "step_S+C" (component C of a heterogeneous job).
std::optional<std::uint32_t> step_of_folder(std::string_view folder);

// Returns the job's number from a slurmstepd's process title, for example 12 from "slurmstepd: [12.batch]".
std::optional<std::uint32_t> job_of_title(std::string_view title);

}  // namespace sharedgpu
