// SPDX-License-Identifier: Apache-2.0
// The place of a session in its tenant's turn, as far as the memory books need it. Plain values: turns/
// computes them, and the books never ask about phases.
#pragma once

#include "arbiter/core/model/phase.h"
#include "arbiter/core/model/table.h"
#include "protocol/units.h"

namespace sharedgpu {

struct Session;

struct Residency {
  Phase phase = Phase::out;    // of its tenant
  bool drained = true;         // nothing passes its gate and the GPU is done: its memory may be evicted
  bool at_work = false;        // its gate is open, or was, and it has not drained since
  bool submits_once = false;   // it was let submit once after it had drained
  bool leads = false;          // its tenant is the one that the turn was begun for
  bool wants = false;          // a thread waits at its gate
  bool tenant_wants = false;   // the same of any session of its tenant
  bool frozen = false;         // its process is stopped
  bool suspending = false;     // its tenant is announced as suspending
  bool revoked = false;        // its tenant's lease was revoked without consent
  bool peers_drain = false;    // a process of its tenant that is not stopped has yet to drain
  bool comes_late = false;     // its job has or may have a turn on other nodes, and none here yet
  bool peers_grow = false;     // a process of its job on another node needs more memory to drain
  Nanoseconds gang_since{};    // since when the gang waits; of two, all nodes have the same elder
  Nanoseconds gates_closed{};  // when its tenant's were closed last
  Nanoseconds last_ran{};      // when its tenant last held a lease
  // Others of its tenant may wait for it to submit more, from then on. max(): they do not.
  Nanoseconds blocks_peers_from = Nanoseconds::max();
};

using Residencies = Table<Session, Residency>;

}  // namespace sharedgpu
