// SPDX-License-Identifier: Apache-2.0
// Identifies the peer of a connection: process, user, and the Slurm step by its cgroup. Nothing that the peer
// sends counts here.
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
  uid_t account = 0;          // the user on whom its use of the daemon counts, see account_of()
  std::uint64_t started = 0;  // in clock ticks since boot: distinguishes a reused pid
  std::uint64_t program = 0;  // see program_of()
  PidNames names;
  UniqueFd pidfd;                     // readable when the process is dead
  std::optional<StepName> step;       // none: in no Slurm job
  std::optional<std::uint32_t> task;  // of the step on this node; none: Slurm keeps no folder for it

  ProcessName process() const { return {.pid = static_cast<std::uint32_t>(pid), .started = started}; }
};

// Identifies the peer of the connected socket. Fails with the reason for which it cannot be served; if
// is_shortage(code), it may succeed a moment later. Any thread; no exceptions.
Status identify(const System& system, int socket, Peer& peer);

// The user on whom a process counts: its own, or the owner of the user namespace in which it runs. Whoever
// has a range of subordinate uids could be a multitude otherwise. All that have ended count as one user, but
// for root's. Any thread; no exceptions.
inline constexpr uid_t kEnded = 65'534;
// A user that nobody is: of peers whose user cannot be read, and of what no user has caused.
inline constexpr uid_t kNobody = static_cast<uid_t>(-1);
uid_t account_of(const System& system, pid_t pid, uid_t uid);

}  // namespace sharedgpu
