// SPDX-License-Identifier: Apache-2.0
// What peers may say: for each message who may send it, which numbers it may have, what it costs, and which
// part of the daemon handles it. Nothing else decides whether a message is accepted.
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

  // Has the message handled, or turns it or its sender away. `descriptor` came with it.
  void receive(Client& client, const Message& message, UniqueFd descriptor) const;

 private:
  const Parts parts_;
};

}  // namespace sharedgpu
