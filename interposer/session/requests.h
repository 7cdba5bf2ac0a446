// SPDX-License-Identifier: Apache-2.0
// Requests of application threads to the arbiter. Each thread waits for the answer to its request, or
// withdraws the request.
//
// Thread-safe. A request is on the stack of the thread that makes it. After a lost connection the request is
// sent again, so the death of the arbiter only prolongs the wait.
#pragma once

#include <mutex>
#include <vector>

#include "interposer/gate/wakeup.h"
#include "protocol/channel.h"

namespace sharedgpu::session {

struct Request {
  explicit Request(MessageType kind) : question(kind) {}

  const MessageType question;  // attach, usage, memory_query, refusal_query or borrow
  Borrow borrow;               // for borrow: the piece requested
  RefusalQuery refusal;        // for refusal_query
  std::uint64_t id = 0;
  Message answer;
  UniqueFd descriptor;  // received with the answer
  gate::Wakeup done;
  bool answered = false;
  bool sent = false;
};

class Requests {
 public:
  void add(Request& request);
  // Withdraws the request, whether answered or not. Must be called before the request goes out of scope.
  void remove(Request& request);
  bool answered(const Request& request) const;
  // Returns true if a thread has a request of this kind, answered or not.
  bool any(MessageType question) const;

  // Sets `unsent` to the oldest request that was not yet sent on this connection, and marks the request as
  // sent. Returns false if there is no such request.
  struct Unsent {
    MessageType question;
    std::uint64_t id;
    Borrow borrow;
    RefusalQuery refusal;
  };
  bool next_unsent(Unsent& unsent);
  // Marks all requests as unsent, since the connection was lost.
  void unsend();
  // Passes the answer to the request of this kind and id, or to all requests of this kind if the id is zero.
  // Drops the answer if the request was withdrawn.
  void answer(MessageType question, std::uint64_t id, const Message& message, UniqueFd descriptor = {});

 private:
  mutable std::mutex mutex_;
  std::vector<Request*> all_;  // oldest first
  std::uint64_t last_id_ = 0;
};

}  // namespace sharedgpu::session
