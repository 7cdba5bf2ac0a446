// SPDX-License-Identifier: Apache-2.0
// Who is at the other end of a connection: process, user, and the Slurm step by its cgroup. Nothing the peer
// says counts here.
#pragma once

#include <sys/types.h>

#include <optional>

#include "arbiter/daemon/system.h"
#include "arbiter/ledger/tenant_name.h"
#include "protocol/channel.h"
#include "protocol/messages.h"
#include "protocol/status.h"

namespace sharedgpu {

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
  std::uint64_t started = 0;          // in clock ticks since boot: tells a reused pid
  std::uint64_t program = 0;          // see program_of()
  UniqueFd pidfd;                     // readable when the process is dead
  std::optional<StepName> step;       // none: in no Slurm job
  std::optional<std::uint32_t> task;  // of the step on this node; none: Slurm keeps no folder for it

  ProcessName process() const { return {.pid = static_cast<std::uint32_t>(pid), .started = started}; }
};

// Looks at the peer of the connected socket. A failure says why it cannot be served; is_shortage() tells of
// its code whether it may go well a moment later. Any thread; no exceptions.
Status identify(const System& system, int socket, Peer& peer);

// Whether a call failed with this errno value for want of descriptors or memory.
bool is_shortage(int code);

}  // namespace sharedgpu
