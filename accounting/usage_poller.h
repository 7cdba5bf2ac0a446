// SPDX-License-Identifier: GPL-2.0-or-later
// A thread of slurmstepd that keeps the step's lease seconds and swap traffic in Slurm's accounting up to
// date.
//
// Slurm polls every JobAcctGatherFrequency seconds (30 by default). In Slurm 22.05, the poll after a task's
// end does not call this plugin for the task, so the task's last value stays. This thread therefore asks the
// arbiter up to five times a second, and makes Slurm poll whenever a number has changed. These additional
// polls do not change Slurm's own polls. At the step's end the lease seconds are off by less than a second.
#pragma once

#include <cstdint>

#include "accounting/usage_writer.h"
#include "slurm_shared/step.h"

namespace sharedgpu {

// The numbers by which Slurm identifies sharedgpu's TRES; nullopt if AccountingStorageTRES lacks the TRES.
struct OurTres {
  std::optional<std::uint32_t> lease;
  std::optional<std::uint32_t> swap;
};

// Starts the thread. Call once in a process. When the step has ended, the thread makes no more polls. It ends
// with slurmstepd.
void start_usage_poller(SharedGpuStep& step, const OurTres& tres);

// Must be called in every call of acct_gather_interconnect_p_get_data(). If the thread of
// start_usage_poller() has made the poll, and this call has to write a value, sets `value` and returns true.
bool poller_writes(StepCounts& value);

}  // namespace sharedgpu
