// SPDX-License-Identifier: Apache-2.0
// Reads the state of processes from /proc and /sys. If a file cannot be read, for example because the process
// has ended, the result is false, 0 or empty. Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/messages.h"

namespace sharedgpu {

// The step of a process, from the text of its /proc/PID/cgroup. Believes the text only if root owns each
// folder down to the job's folder. Users may own folders in the cgroup tree, and may make folders with any
// name there. If the text names the job by SLUID, the job's number comes from the title of the step's
// slurmstepd. Fails only for lack of descriptors or memory, see is_shortage().
Status step_of_process(const System& system, std::string_view cgroup, std::optional<StepName>& step);

// Returns true if one of the user numbers in the text of a /proc/PID/status is `uid`.
bool runs_as(const std::string& status, uid_t uid);

// The pids of a process, one in each PID namespace that contains the process, and the inode numbers of these
// namespaces. The first pid is the one in the daemon's namespace, the last pid the one in the innermost
// namespace. The numbers stay the same until the process ends. Both lists are empty if /proc does not report
// the pids.
struct PidNames {
  std::vector<pid_t> pids;
  std::vector<ino_t> namespaces;  // empty if there is only one namespace, or if they cannot be read
};
PidNames pid_names_of(const System& system, pid_t pid);
// Returns the pids of the process `pid` in all its PID namespaces, from the text of its /proc/PID/status.
PidNames pid_names_in(const System& system, pid_t pid, const std::string& status);
// The pid of `process` in the PID namespace of the process `viewer`. 0 if `viewer` does not see the namespace
// of `process`, or if the names of either process are unknown.
pid_t pid_seen_by(const PidNames& viewer, const PidNames& process);

// The start time of the process, in clock ticks since boot; 0 if there is no such process.
std::uint64_t start_time_of(const System& system, pid_t pid);
// An identifier of the program that a process executes: the start address of its stack. The identifier
// changes with every exec, even of the same program. Returns 0 if there is no such process, or /proc does not
// report the address.
std::uint64_t program_of(const System& system, pid_t pid);
// The start time and the program's identifier, from the text of a /proc/PID/stat.
std::uint64_t start_time_in(std::string_view stat);
std::uint64_t program_in(std::string_view stat);
// Returns false if the process is known to have ended, or to run another program than `program`. If
// descriptors are short, the process cannot be checked, and the result is true.
bool may_run(const System& system, pid_t pid, std::uint64_t program);
// Does the same as start_time_of(), but returns nullopt if the time cannot be read because of a shortage, see
// is_shortage().
std::optional<std::uint64_t> known_start_time_of(const System& system, pid_t pid);

// A pidfd of the process; empty if the process has ended.
UniqueFd open_process(const System& system, const ProcessName& process);

// A process is stopped if none of its threads can run. by_user: stopped by a signal, by a debugger, or by a
// freeze of a cgroup that the user owns. by_root: root has frozen the process's cgroup.
enum class Stopped : std::uint8_t { no, by_user, by_root };
Stopped stopped_state(const System& system, pid_t pid);
inline bool is_stopped(const System& system, pid_t pid) { return stopped_state(system, pid) != Stopped::no; }

}  // namespace sharedgpu
