// SPDX-License-Identifier: Apache-2.0
// The actions that the core asks for. Plain values, performed in their order.
#pragma once

#include <string>
#include <variant>
#include <vector>

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
  Nanoseconds queue{};  // how short queues are to be then; zero: as usual
};

// Zero: open end.
struct SetTurnEnds {
  SessionId session;
  Nanoseconds at{};
};

// For the ledger: a lease begins or ends.
struct RecordLease {
  bool grant = false;
  LeaseKey key;
  Epoch epoch;
  Nanoseconds at{};
};

// The session broke the protocol or cannot be served: tell it why and drop it. SessionGone follows.
struct Drop {
  SessionId session;
  std::string reason;
};

// Is the session's process stopped? Looked tells; it may come late, or not at all where nothing has changed.
struct Look {
  SessionId session;
};

// Replaces the timer that was armed before.
struct ArmTimer {
  Nanoseconds at{};
};

// For the administrator's eyes.
struct Note {
  TenantId tenant;
  std::string text;
};

using Action = std::variant<Send, SetGate, SetContended, SetOversubscribed, SetTurnEnds, RecordLease, Drop,
                            Look, ArmTimer, Note>;
using Actions = std::vector<Action>;

}  // namespace sharedgpu
