// SPDX-License-Identifier: GPL-2.0-or-later
// A thread of slurmstepd that keeps the step's lease seconds and swap traffic in Slurm's books up to date.
//
// Slurm's own polls come every JobAcctGatherFrequency seconds (30 by default), and in 22.05 the one after a
// task's end no longer asks us about it: its last value stays. So this thread asks the arbiter several times
// a second and, whenever a number has changed, has Slurm poll. Polls of Slurm's own are left as
// they are. Should the number still be wrong at the step's end, then by less than a second.
#pragma once

#include <cstdint>

#include "accounting/usage_writer.h"
#include "slurm_shared/step.h"

namespace sharedgpu {

// The numbers of the TRES that Slurm keeps for us; none: AccountingStorageTRES lacks it.
struct OurTres {
  std::optional<std::uint32_t> lease;
  std::optional<std::uint32_t> swap;
};

// Starts the thread, once in a process. The thread
// ends with slurmstepd, and does nothing more once the step has ended.
void start_usage_poller(SharedGpuStep& step, const OurTres& tres);

// To be called in every call of Slurm's get_data. Where this thread made the poll, returns true and sets
// `value` if there is something to write.
bool poller_writes(StepCounts& value);

}  // namespace sharedgpu
