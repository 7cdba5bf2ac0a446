// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection: process, user, and the Slurm step by its cgroup.
//
// Nothing the peer says counts here. Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "protocol/channel.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  std::uint64_t started = 0;          // in clock ticks since boot: tells a reused pid
  std::uint64_t program = 0;          // see program_of()
  UniqueFd pidfd;                     // readable when the process is dead
  std::optional<StepName> step;       // none: in no Slurm job
  std::optional<std::uint32_t> task;  // of the step on this node; none: Slurm keeps no folder for it
};

// Looks at the peer of the connected socket `fd`. Returns an empty string, or why it cannot be served.
// `passes` is set where it may go well a moment later, as where descriptors are short.
std::string identify(int fd, Peer& peer, bool& passes);

// The step that the text of a /proc/PID/cgroup names, in the forms of cgroup v1 and v2. Folders that a user
// can make (below user.slice, or below another job's) do not count.
std::optional<StepName> step_of_cgroup(std::string_view text);

// The task that it names, by its number on the node.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text);

// The step of a process. Where its cgroup names the job by SLUID (26.05 with cgroup v2), the number is that
// in the title of the step's slurmstepd. /proc and /sys are looked for in the folder `root`.
std::optional<StepName> step_of_process(pid_t pid, const std::string& root = {});

// The pid by which process `viewer` knows process `pid`; 0: it does not see it, being in another PID
// namespace, or that is not for us to know.
pid_t pid_seen_by(pid_t viewer, pid_t pid);

// When process `pid` was started, or 0 if there is none.
std::uint64_t start_time_of(pid_t pid);
// A descriptor of the process `pid` that was started then; empty where there is none.
UniqueFd open_process(pid_t pid, std::uint64_t started);
// A number that process `pid` keeps until it executes another program (or the same anew): where its stack
// begins. 0: there is none, or it is not for us to know.
std::uint64_t program_of(pid_t pid);

}  // namespace sharedgpu
