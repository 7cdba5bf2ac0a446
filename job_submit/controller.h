// SPDX-License-Identifier: GPL-2.0-or-later
// Converts slurmctld's tables and messages to the types of memory.h. The results refer to strings in Slurm's
// tables. The results are valid while a function of the plugin runs, because slurmctld locks its tables
// during the call.
#pragma once

#include <vector>

#include "job_submit/memory.h"
#include "slurm_shared/abi/controller.h"

namespace sharedgpu::job_submit {

Job job_of(const job_desc_msg_t& message);

// Returns `job` with the values that `change` states, except for the memory, which stays that of `job`.
Job changed(Job job, const job_desc_msg_t& change);

// The memory that `message` states; nullopt if it states none.
std::optional<Request> memory_in(const job_desc_msg_t& message);

// Returns the partitions that `names` lists, each once, or the default partition if `names` is null. Leaves
// out unknown names, and partitions where memory is not a consumable resource.
std::vector<Partition> partitions_of(const char* names);

}  // namespace sharedgpu::job_submit
