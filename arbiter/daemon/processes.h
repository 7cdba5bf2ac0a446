// SPDX-License-Identifier: Apache-2.0
// Reads /proc and /sys for the state of processes.
// A file that cannot be read, as that of a process that has ended, says nothing: the answer is "no", 0 or
// empty. Any thread; no exceptions.
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

// The step of a process, by the text of its /proc/PID/cgroup. It counts where root owns each folder down to
// the job's: another user may have folders of his own in the tree, and names them as he likes. Where the text
// names the job by SLUID, its number is that in the title of the step's slurmstepd. Fails for want of
// descriptors or memory alone, see is_shortage().
Status step_of_process(const System& system, std::string_view cgroup, std::optional<StepName>& step);

// True if one of the user numbers in the text of a /proc/PID/status is `uid`.
bool runs_as(const std::string& status, uid_t uid);

// The pids of a process, one in each PID namespace that it is in, and the numbers of those namespaces: that
// of the daemon first, its own last. They stay the same as long as it lives. Empty: /proc does not say.
struct PidNames {
  std::vector<pid_t> pids;
  std::vector<ino_t> namespaces;  // where it is in more than one
};
PidNames pid_names_of(const System& system, pid_t pid);
// The same by the text of its /proc/PID/status.
PidNames pid_names_in(const System& system, pid_t pid, const std::string& status);
// The pid by which process `viewer` knows `process`; 0: that is in another PID namespace and it does not see
// it, or one of them is not known.
pid_t pid_seen_by(const PidNames& viewer, const PidNames& process);

// When the process was started, in clock ticks from the boot of the host; 0: there is none.
std::uint64_t start_time_of(const System& system, pid_t pid);
// A number that a process keeps until it executes another program (or the same anew): where its stack begins.
// 0: there is no process, or /proc does not say.
std::uint64_t program_of(const System& system, pid_t pid);
// The same two from the text of a /proc/PID/stat.
std::uint64_t start_time_in(std::string_view stat);
std::uint64_t program_in(std::string_view stat);
// False where the process is known to have ended, or to run another program than that with the number
// `program`. For want of descriptors nothing is known.
bool may_run(const System& system, pid_t pid, std::uint64_t program);
// As start_time_of(); nothing where a shortage leaves it unknown, see is_shortage().
std::optional<std::uint64_t> known_start_time_of(const System& system, pid_t pid);

// A pidfd of that process; empty where there is none.
UniqueFd open_process(const System& system, const ProcessName& process);

// A process is stopped where none of its threads can run: by its user, who has sent signals, debugs it or may
// have frozen its cgroup, or by root, who has frozen that.
enum class Stopped : std::uint8_t { no, by_user, by_root };
Stopped stopped_state(const System& system, pid_t pid);
inline bool is_stopped(const System& system, pid_t pid) { return stopped_state(system, pid) != Stopped::no; }

}  // namespace sharedgpu
