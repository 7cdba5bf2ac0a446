// SPDX-License-Identifier: Apache-2.0
// Residency: the state of a session in its tenant's turn, as far as the memory accounting needs it. turns/
// computes these plain values, so memory/ does not depend on turns/.
#pragma once

#include "arbiter/core/model/phase.h"
#include "arbiter/core/model/table.h"
#include "protocol/units.h"

namespace sharedgpu {

struct Session;

struct Residency {
  Phase phase = Phase::out;  // phase of the session's tenant
  bool drained = true;   // the gate is closed, the session's work on the GPU is done, and its memory may be
                         // evicted
  bool at_work = false;  // the session may have work on the GPU: its gate is open, or it has not drained
                         // since its gate closed
  bool submits_once = false;   // the session was allowed to submit once after it had drained, and has not
                               // drained again
  bool leads = false;          // the turn was begun for the session's tenant
  bool wants = false;          // a thread waits at the session's gate
  bool tenant_wants = false;   // a thread waits at the gate of a session of the tenant
  bool frozen = false;         // the session's process is stopped
  bool suspending = false;     // Slurm has announced that it will suspend the tenant
  bool revoked = false;        // the tenant's lease was ended without an answer from its processes
  bool peers_drain = false;    // while the tenant leaves: a process of its job on any node has yet to drain;
                               // stopped processes of this node do not count
  bool comes_late = false;     // the tenant's job may have a turn on other nodes; the tenant does not run
                               // here, and this session has never run
  bool peers_grow = false;     // a process of the tenant's job on another node needs more memory to drain
  Nanoseconds gang_since{};    // when the tenant's gang began to wait, by the coordinator's clock; the same
                               // on all nodes
  Nanoseconds gates_closed{};  // when the tenant's gates last closed
  Nanoseconds last_ran{};      // when the tenant's last lease ended
  // From this time on, other sessions of the tenant's job may wait for this session's next submission. max():
  // no other session waits.
  Nanoseconds blocks_peers_from = Nanoseconds::max();
};

using Residencies = Table<Session, Residency>;

}  // namespace sharedgpu
