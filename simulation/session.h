// SPDX-License-Identifier: Apache-2.0
// A model of a session as the arbiter's core sees it: its lease page, its memory, and the orders that it
// carries out one after another. The property tests, the simulator and the benchmarks share this model of the
// interposer. Each of them models the programs in its own way (Process).
//
// The owner of the session advances the time, delivers messages in both directions, and calls carry_out() for
// each piece of an order. The model behaves correctly; tests model hostile sessions themselves.
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
  bool open = false;  // the gate is open
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
  Epoch epoch;              // epoch of the last Welcome, Restore or Revoke
  std::uint64_t order = 0;  // order number of the last Revoke or Step message
  MemoryUse use;
  Bytes resident_limit;
  bool in_turn = false;        // the session may have work on the GPU: from Ready or an open gate to Released
  std::deque<Message> orders;  // Restore, Evict, Revoke and Step messages; the first is the current order
  bool obeying = false;        // the current order has begun
  bool has_stepped = false;    // in the current Step, the waiting thread, if any, has been allowed to submit

  Bytes missing() const { return minus(use.swappable, use.resident); }

  // Receives a message. If the message is an order, adds it to `orders` and returns true.
  bool receive(const Message& message);
  // Begins the first of `orders`. Returns false if there is no order, or if this order has already begun.
  bool begin_order() { return !orders.empty() && !std::exchange(obeying, true); }
  // Call this when the arbiter has granted growth. During a turn, makes the session's memory resident up to
  // the granted limit.
  void take(const Verdict& granted);
};

// Models the behavior of a session's process while the session carries out orders.
class Process {
 public:
  virtual ~Process() = default;
  // Called repeatedly while the session carries out a Revoke or a Step, with the gate closed. Returns the
  // time until the next call, or zero if the process has no work on the GPU and submits none before its next
  // turn.
  virtual Nanoseconds drain(Session& session, MessageType order) = 0;
  // Called when all memory that the Step message allows is resident. A thread that waits at the gate may then
  // submit once. Returns the time until the session drains.
  virtual Nanoseconds submit_once(Session&) { return {}; }
  virtual bool can_evict(Session&) { return true; }
  virtual bool waits(const Session& session) const = 0;  // returns true if a thread waits at the gate
  virtual Nanoseconds longest_submission(Session&) { return {}; }
};

// The messages by which a session answers orders.
using Report = std::variant<Released, Ready, Usage>;

// The result of carrying out one piece of an order.
struct Piece {
  bool finished = false;              // the order is finished, and the next order is current
  Bytes copied = {};                  // bytes copied in this piece, in either direction; copying takes time
  Nanoseconds pause{};                // time until the next piece; ignored if bytes were copied
  std::optional<Report> report = {};  // message to be sent after the piece
  bool stuck = false;                 // true: nothing more can be evicted at present
};

// Carries out the next piece of the current order, and copies at most `chunk` bytes. Call only while there is
// an order.
Piece carry_out(Session& session, Process& process, Bytes chunk);

}  // namespace sharedgpu::simulation
