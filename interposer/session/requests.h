// SPDX-License-Identifier: Apache-2.0
// The questions that application threads have put to the arbiter and wait for.
//
// Safe from all threads. A request lives on the asking thread's stack; after a lost connection it is sent
// again, so the asker sees no more of the arbiter's death than a longer wait.
#pragma once

#include <mutex>

#include "interposer/session/wakeup.h"
#include "protocol/channel.h"

namespace sharedgpu::session {

struct Request {
  explicit Request(MessageType kind) : question(kind) {}

  const MessageType question;  // attach, usage, memory_query or borrow
  Borrow borrow;               // of the last kind: what is asked for
  std::uint64_t id = 0;
  Message answer;
  UniqueFd descriptor;  // that came with it
  Wakeup done;
  bool answered = false;
  bool sent = false;
  Request* next = nullptr;
};

class Requests {
 public:
  void add(Request& request);
  // Takes it back, answered or not. Must be called before the request goes out of scope.
  void remove(Request& request);
  bool answered(const Request& request) const;

  // The oldest that was not sent on this connection is now counted as sent; false: there is none.
  struct Unsent {
    MessageType question;
    std::uint64_t id;
    Borrow borrow;
  };
  bool next_unsent(Unsent& unsent);
  // The connection was lost: all are to be sent again.
  void unsend();
  // Hands the answer to the request of this kind and id; one that was withdrawn is forgotten.
  void answer(MessageType question, std::uint64_t id, const Message& message, UniqueFd descriptor = {});

 private:
  mutable std::mutex mutex_;
  Request* first_ = nullptr;
  std::uint64_t last_id_ = 0;
};

}  // namespace sharedgpu::session
