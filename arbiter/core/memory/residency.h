// SPDX-License-Identifier: Apache-2.0
// Residency: the state of a session in its tenant's turn, as far as the memory accounting needs it. Plain
// values, which turns/ computes, so that memory/ needs nothing else of turns/.
#pragma once

#include "arbiter/core/model/phase.h"
#include "arbiter/core/model/table.h"
#include "protocol/units.h"

namespace sharedgpu {

struct Session;

struct Residency {
  Phase phase = Phase::out;  // of its tenant
  bool drained = true;   // its gate is closed and its work on the GPU is done, so its memory may be evicted
  bool at_work = false;  // its gate is open, or the session has not drained since its gate closed
  bool submits_once = false;   // it was allowed to submit once after it had drained
  bool leads = false;          // the turn was begun for its tenant
  bool wants = false;          // a thread waits at its gate
  bool tenant_wants = false;   // a thread waits at the gate of a session of its tenant
  bool frozen = false;         // its process is stopped
  bool suspending = false;     // Slurm has announced that it will suspend the tenant
  bool revoked = false;        // its tenant's lease was ended without an answer from its processes
  bool peers_drain = false;    // a process of its tenant that is not stopped has yet to drain
  bool comes_late = false;     // its job has or may have a turn on other nodes, but has no turn here yet
  bool peers_grow = false;     // a process of its job on another node needs more memory to drain
  Nanoseconds gang_since{};    // when its gang began to wait; all nodes agree which of two gangs is older
  Nanoseconds gates_closed{};  // when its tenant's gates last closed
  Nanoseconds last_ran{};      // when its tenant last held a lease
  // From this time on, other sessions of its tenant may wait for its next submission. max(): none waits.
  Nanoseconds blocks_peers_from = Nanoseconds::max();
};

using Residencies = Table<Session, Residency>;

}  // namespace sharedgpu
