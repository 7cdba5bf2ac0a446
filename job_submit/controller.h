// SPDX-License-Identifier: GPL-2.0-or-later
// Converts slurmctld's tables and messages to the types of memory.h. The results refer to strings in
// slurmctld's tables, so they are valid only during one call of the plugin: slurmctld locks its tables for
// this time.
#pragma once

#include <vector>

#include "job_submit/memory.h"
#include "slurm_shared/abi/controller.h"

namespace sharedgpu::job_submit {

Job job_of(const job_desc_msg_t& message);

// Returns a copy of `job` with the values that `change` states. Only the memory stays that of `job`.
Job changed(Job job, const job_desc_msg_t& change);

// The memory that `message` requests; nullopt if it requests none.
std::optional<Request> memory_in(const job_desc_msg_t& message);

// Returns the partitions that `names` lists, each once, or the default partition if `names` is null. Leaves
// out unknown names, and partitions where memory is not a consumable resource.
std::vector<Partition> partitions_of(const char* names);

}  // namespace sharedgpu::job_submit
