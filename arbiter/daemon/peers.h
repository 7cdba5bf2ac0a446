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
  uid_t account = 0;          // the user charged for the peer's use of the daemon, see account_of()
  std::uint64_t started = 0;  // in clock ticks since boot; distinguishes a reused pid
  std::uint64_t program = 0;  // see program_of()
  PidNames names;
  UniqueFd pidfd;                // readable when the process has ended
  std::optional<StepName> step;  // nullopt: in no Slurm job
  // node-local task number in the step; nullopt: in no Slurm job, or the task has no cgroup folder
  std::optional<std::uint32_t> task;

  ProcessName process() const { return {.pid = static_cast<std::uint32_t>(pid), .started = started}; }
};

// Identifies the peer of the connected socket. Fails with the reason why the peer cannot be served; if
// is_shortage(code), a retry may succeed. Any thread; no exceptions.
Status identify(const System& system, int socket, Peer& peer);

// Returns the user charged for a process: the owner of its user namespace, or its own user outside such
// namespaces. Without this rule, a user with a range of subordinate uids would count as many users. All ended
// processes except root's are charged to kEnded, which stands for one user. Any thread; no exceptions.
inline constexpr uid_t kEnded = 65'534;
// Stands for no user: used for a peer whose user cannot be read, and for log lines that no user has caused.
inline constexpr uid_t kNobody = static_cast<uid_t>(-1);
uid_t account_of(const System& system, pid_t pid, uid_t uid);

// Returns true if the peer runs as `user`, or with a subordinate uid in a user namespace of `user`, as in a
// rootless container. kEnded, the account of ended processes, belongs to no user.
inline bool acts_for(const Peer& peer, uid_t user) {
  return peer.uid == user || (peer.account == user && peer.account != kEnded);
}

// Returns the user whose rights decide which tenants the peer may see. For a process in a rootless container,
// this is the user that runs the container. For an ended process it is kNobody.
inline uid_t viewer_of(const Peer& peer) { return peer.account == kEnded ? kNobody : peer.account; }

}  // namespace sharedgpu
