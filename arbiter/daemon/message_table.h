// SPDX-License-Identifier: Apache-2.0
// The messages that peers may send. Each row states the required role and authority, the valid numbers, the
// cost, and the part of the daemon that handles the message. A handler may still refuse a message, for
// reasons that depend on the state of the session or of the job.
//
// To add a message:
//   1. Follow the recipe in protocol/messages.h for the protocol and its tests.
//   2. List the type of the message in is_for_arbiter() of message_table.cpp, which lists the types that
//      peers send and those that the arbiter sends. Add a row for the message in message_table.cpp, and a
//      method of the part that handles the message. If the message has numbers or text, add an is_valid() in
//      validity.h and validity.cpp.
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

  // Passes the message to its handler, or reacts as the message's row says if the message is not accepted.
  void receive(Client& client, const Message& message) const;

 private:
  const Parts parts_;
};

}  // namespace sharedgpu
