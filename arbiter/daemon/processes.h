// SPDX-License-Identifier: Apache-2.0
// What /proc and /sys tell of processes.
//
// What cannot be read, as of a process that has ended, counts as not being so. Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The step of a process, by the text of its /proc/PID/cgroup. Where that names the job by SLUID (26.05 with
// cgroup v2), the number is that in the title of the step's slurmstepd.
std::optional<StepName> step_of_process(const System& system, std::string_view cgroup);

// Whether any of the user numbers of a process is `uid`, by the text of its /proc/PID/status.
bool runs_as(const std::string& status, uid_t uid);

// The pid by which process `viewer` knows process `pid`; 0: it does not see it, being in another PID
// namespace, or that is not for us to know.
pid_t pid_seen_by(const System& system, pid_t viewer, pid_t pid);

// When the process was started, in clock ticks from the boot of the host; 0: there is none.
std::uint64_t start_time_of(const System& system, pid_t pid);
// A number that a process keeps until it executes another program (or the same anew): where its stack begins.
// 0: there is none, or it is not for us to know.
std::uint64_t program_of(const System& system, pid_t pid);
// The same two, by the text of its /proc/PID/stat.
std::uint64_t start_time_in(std::string_view stat);
std::uint64_t program_in(std::string_view stat);

// A pidfd of that process; empty where there is none.
UniqueFd open_process(const System& system, const ProcessName& process);

// Whether none of its threads can run: stopped by signals or a debugger, or frozen with its cgroup.
bool is_stopped(const System& system, pid_t pid);

}  // namespace sharedgpu
