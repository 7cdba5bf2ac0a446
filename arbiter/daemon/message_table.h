// SPDX-License-Identifier: Apache-2.0
// The messages that peers may send. Each row of the table states which peers may send the message, which
// contents are valid, whether the rate limit applies, and which part of the daemon handles the message. A
// handler may still refuse a message, for reasons that depend on the state of the session or of the job.
//
// To add a message:
//   1. Follow the recipe in protocol/messages.h for the protocol and its tests.
//   2. Add the type of the message to the switch in is_for_arbiter() of message_table.cpp. Add a row for the
//      message in message_table.cpp, and a method of the part that handles the message. If the message has
//      numbers or text, add an is_valid() in validity.h and validity.cpp.
//   3. If the message is a report to the core, also add its type to Event (core/events.h) and a Core::on()
//      (core/core.h and core.cpp).
//
// Event-loop thread only.
#pragma once

#include "arbiter/daemon/client.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Administration;
class Complaints;
class Health;
class Jobs;
class Journal;
class Queries;
class Reload;
class Sessions;

class MessageTable {
 public:
  struct Parts {
    Sessions& sessions;
    Jobs& jobs;
    Queries& queries;
    Administration& administration;
    Health& health;
    Reload& reload;
    Journal& journal;
    Complaints& complaints;
  };
  explicit MessageTable(const Parts& parts) : parts_(parts) {}

  // Passes the message to its handler. If the message is not accepted, reacts as its row says.
  void receive(Client& client, const Message& message) const;

 private:
  const Parts parts_;
};

}  // namespace sharedgpu
