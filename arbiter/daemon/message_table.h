// SPDX-License-Identifier: Apache-2.0
// The messages that peers may send: for each the role and authority that it needs, the numbers that are
// valid, its cost, and the part of the daemon that handles it. Nothing else decides whether a message is
// accepted.
//
// One thread, that of the event loop.
#pragma once

#include "arbiter/daemon/client.h"
#include "protocol/channel.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Administration;
class Jobs;
class Journal;
class Queries;
class Sessions;

class MessageTable {
 public:
  struct Parts {
    Sessions& sessions;
    Jobs& jobs;
    Queries& queries;
    Administration& administration;
    Journal& journal;
  };
  explicit MessageTable(const Parts& parts) : parts_(parts) {}

  // Has the message handled, or turns it or its sender away. `descriptor` came with the message.
  void receive(Client& client, const Message& message, UniqueFd descriptor) const;

 private:
  const Parts parts_;
};

}  // namespace sharedgpu
