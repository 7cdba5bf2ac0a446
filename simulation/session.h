// SPDX-License-Identifier: Apache-2.0
// A session as the arbiter's core meets it: what its lease page says, the memory that it has, and the orders
// that it carries out one after another. It is the one model of the interposer that the tests' worlds, the
// simulator and the benchmarks share; their programs differ.
//
// The owner lets the time pass, delivers messages both ways and asks for one piece of an order after another.
// A session that behaves: hostile ones are played by the tests by hand.
#pragma once

#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "arbiter/core/model/actions.h"
#include "protocol/messages.h"

namespace sharedgpu::simulation {

// The contents of the lease page.
struct Page {
  bool open = false;  // the gate
  bool contended = false;
  bool oversubscribed = false;
  Nanoseconds queue{};
  Nanoseconds turn_ends{};

  void set(const SetGate& action) { open = action.open; }
  void set(const SetContended& action) { contended = action.contended; }
  void set(const SetTurnEnds& action) { turn_ends = action.at; }
  void set(const SetOversubscribed& action) {
    oversubscribed = action.oversubscribed;
    queue = action.queue;
  }
};

struct Session {
  SessionId id;
  Page page;
  Epoch epoch;              // of the last Welcome, Restore or Revoke
  std::uint64_t order = 0;  // of the last Revoke or Step
  MemoryUse use;
  Bytes resident_limit;
  bool in_turn = false;        // it may have work on the GPU: from Ready or an open gate to Released
  std::deque<Message> orders;  // Restore, Evict, Revoke and Step; the first is the one at hand
  bool obeying = false;        // the order at hand is under way
  bool has_stepped = false;    // the Step at hand has let a thread submit, if one waited

  Bytes missing() const { return minus(use.swappable, use.resident); }

  // Takes note of a message. True where it is an order, to be carried out after those before it.
  bool receive(const Message& message);
  // Begins the next order. False where there is none, or one is under way.
  bool begin_order() { return !orders.empty() && !std::exchange(obeying, true); }
  // Growth was granted. In its turn, its memory is there as far as the limit goes.
  void take(const Verdict& granted);
};

// The process of a session: what it does as the session carries out orders.
class Process {
 public:
  virtual ~Process() = default;
  // The gate is closed, for a Revoke or a Step. Returns how long to wait before the next call; zero: nothing
  // of it runs on the GPU, nor will before its next turn.
  virtual Nanoseconds drain(Session& session, MessageType order) = 0;
  // All memory that the Step allows is there: a thread that waits at the gate may submit once. Returns how
  // long to wait before the drain.
  virtual Nanoseconds submit_once(Session&) { return {}; }
  virtual bool can_evict(Session&) { return true; }
  virtual bool waits(const Session& session) const = 0;  // a thread does, at the gate
  virtual Nanoseconds longest_submission(Session&) { return {}; }
};

// The messages by which a session answers its orders.
using Report = std::variant<Released, Ready, Usage>;

// A piece of an order.
struct Piece {
  bool finished = false;              // the order; the next one is at hand
  Bytes copied = {};                  // either way, which takes its time
  Nanoseconds pause{};                // until the next piece, where nothing was copied
  std::optional<Report> report = {};  // to be sent after the piece
  bool stuck = false;                 // nothing more can be evicted for the time being
};

// Carries out the next piece of the order at hand, with copies of `chunk` at most. There must be an order.
Piece carry_out(Session& session, Process& process, Bytes chunk);

}  // namespace sharedgpu::simulation
