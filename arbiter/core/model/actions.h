// SPDX-License-Identifier: Apache-2.0
// The actions that the core requests. Plain values; the daemon performs them in order.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "arbiter/core/model/gang.h"
#include "arbiter/core/model/lease_book.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct Send {
  SessionId session;
  Message message;
};

struct SetGate {
  SessionId session;
  bool open = false;
};

struct SetContended {
  SessionId session;
  bool contended = false;
};

struct SetOversubscribed {
  SessionId session;
  bool oversubscribed = false;
  Nanoseconds queue{};  // the backlog limit while oversubscribed; zero: the default
};

// Writes the planned end of the turn into the session's lease page.
struct SetTurnEnds {
  SessionId session;
  Nanoseconds at{};  // zero: the turn has no planned end, or the session is not told
};

// Records in the ledger that a lease begins or ends.
struct RecordLease {
  bool grant = false;
  LeaseKey key;
  Epoch epoch;
  Nanoseconds at{};
};

// The session broke the protocol or cannot be served: send the reason to the session and close its
// connection. The event SessionGone follows.
struct Drop {
  SessionId session;
  std::string reason;
};

// Poll whether the session's process is stopped. The answer is the event Looked. It may come late, or not at
// all if nothing has changed.
struct Look {
  SessionId session;
};

// Replaces the timer that was armed before.
struct ArmTimer {
  Nanoseconds at{};
};

// A message for the administrator.
struct Note {
  TenantId tenant;
  std::string text;
  bool routine = false;  // the arbiter solves the problem itself, and nobody has to act
};

// The tenant keeps others waiting, for one of the reasons in overdue.h. The core first requests one note,
// unless MaxOveruse is over by then. After MaxOveruse the core requests one warning for each GPU on which
// others wait (OnOveruse=warn). With OnOveruse=cancel the core requests a cancel instead, and repeats it
// until the tenant has left and evicted.
struct Overstay {
  enum class Response : std::uint8_t {
    note,    // the tenant has kept others waiting for a while
    warn,    // the time exceeds MaxOveruse
    cancel,  // the time exceeds MaxOveruse: the tenant's processes with a session on the GPU are to be ended
  };
  TenantId tenant;
  GpuUuid gpu;
  unsigned number = 0;   // number of the GPU, in the host's order
  Nanoseconds lasted{};  // how long others have waited, as counted by scheduler/overuse.h
  Response response = Response::note;
  bool evicts = false;   // the tenant has drained, and others wait only for its memory
  bool stopped = false;  // the tenant's processes that others wait for are stopped
};

using Action = std::variant<Send, SetGate, SetContended, SetOversubscribed, SetTurnEnds, RecordLease, Drop,
                            Look, ArmTimer, Note, Overstay, TellGang>;
using Actions = std::vector<Action>;

}  // namespace sharedgpu
