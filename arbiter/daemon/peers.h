// SPDX-License-Identifier: Apache-2.0
// Identifies the peer of a connection: process, user, and the Slurm step from its cgroup. Uses nothing that
// the peer sends.
#pragma once

#include <sys/types.h>

#include <optional>

#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/messages.h"
#include "protocol/status.h"

namespace sharedgpu {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  uid_t account = 0;          // the user charged for its use of the daemon, see account_of()
  std::uint64_t started = 0;  // in clock ticks since boot; distinguishes a reused pid
  std::uint64_t program = 0;  // see program_of()
  PidNames names;
  UniqueFd pidfd;                     // readable when the process is dead
  std::optional<StepName> step;       // none: in no Slurm job
  std::optional<std::uint32_t> task;  // node-local task number in the step; none: Slurm has no folder for it

  ProcessName process() const { return {.pid = static_cast<std::uint32_t>(pid), .started = started}; }
};

// Identifies the peer of the connected socket. Fails with the reason for which it cannot be served; if
// is_shortage(code), a retry may succeed. Any thread; no exceptions.
Status identify(const System& system, int socket, Peer& peer);

// Returns the user charged for a process: its own user, or the owner of its user namespace, since a user with
// a range of subordinate uids would otherwise count as many users. Ended processes, except root's, all count
// as the user kEnded. Any thread; no exceptions.
inline constexpr uid_t kEnded = 65'534;
// Stands for no user. Used for peers whose user cannot be read, and for causes that belong to no user.
inline constexpr uid_t kNobody = static_cast<uid_t>(-1);
uid_t account_of(const System& system, pid_t pid, uid_t uid);

}  // namespace sharedgpu
