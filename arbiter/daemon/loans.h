// SPDX-License-Identifier: Apache-2.0
// Finds the session that lends what another session borrows, and the session that waits for the answer.
// Keeps only numbers, and a bounded count of them for each session; descriptors pass through unread. Nothing
// crosses from one tenant to another. One thread at a time.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace sharedgpu {

class Loans {
 public:
  static constexpr unsigned kMostAsked = 16;  // at once by a session
  static constexpr unsigned kMostOwed = 64;   // at once by a session

  // A message to be sent, with the descriptor that came, if one did.
  struct Passed {
    SessionId to;
    Message message;
  };

  // From here on the session lends under this number, and under no other.
  void announce(SessionId session, TenantId tenant, std::uint64_t lender);
  // Returns the question to the lender, or an answer to the borrower. `lenders_missing`: sessions may still
  // come back.
  Passed borrow(SessionId session, TenantId tenant, const Borrow& borrow, bool lenders_missing);
  // Returns the answer to the borrower; nullopt: nobody waits for it.
  std::optional<Passed> lend(SessionId session, const Lend& lend);
  // The session has ended. Returns the answers to the borrowers that wait for it.
  std::vector<Passed> forget(SessionId session);

 private:
  using Key = std::pair<TenantId, std::uint64_t>;
  struct Ticket {
    SessionId borrower;
    std::uint64_t request = 0;
    SessionId lender;
  };
  struct Count {
    unsigned asked = 0;
    unsigned owed = 0;
  };
  using Tickets = std::map<std::uint64_t, Ticket>;

  static Passed answer(SessionId to, const Lent& lent) { return {to, Message::of(lent)}; }
  Tickets::iterator close(Tickets::iterator ticket);

  std::map<Key, SessionId> lenders_;
  std::map<SessionId, Key> keys_;
  Tickets tickets_;
  std::map<SessionId, Count> counts_;  // of tickets
  std::uint64_t last_ticket_ = 0;
};

}  // namespace sharedgpu
