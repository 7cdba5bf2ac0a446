// SPDX-License-Identifier: Apache-2.0
// What the threads of this process want said to the arbiter. Only the service thread sends, so a slow arbiter
// holds up nobody else; and what is said twice before it was sent is sent once.
//
// Safe from all threads; want() and usage() also from places that must not block.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include "interposer/session/doorbell.h"
#include "protocol/messages.h"

namespace sharedgpu::session {

// A report on the turn; the service thread adds the newest MemoryUse when it sends it.
struct Report {
  MessageType type = MessageType::invalid;  // ready, released, idle or give_back
  Epoch epoch;
  std::uint64_t order = 0;   // that Released answers
  Nanoseconds span{};        // overuse or idle time
  Nanoseconds submission{};  // of released
};

class Outbox {
 public:
  // What rings when something is to be sent.
  Doorbell& doorbell() { return doorbell_; }

  void post(const Report& report);
  void want();
  // What was evicted has to come back for the host memory that it takes.
  void want_home();
  void usage(bool stuck);
  // Usage that asks for growth, the answer to which nobody waits for.
  void claim();
  // A question that is answered at once, by an arbiter that lives.
  void ping();
  // Something else (a request) is to be sent.
  void poke() { doorbell_.ring(); }

  // For the service thread.
  bool take_want() { return want_.exchange(false, std::memory_order_acq_rel); }
  bool take_home() { return home_.exchange(false, std::memory_order_acq_rel); }
  bool take_usage() { return usage_.exchange(false, std::memory_order_acq_rel); }
  bool take_claim() { return claim_.exchange(false, std::memory_order_acq_rel); }
  bool take_ping() { return ping_.exchange(false, std::memory_order_acq_rel); }
  bool take_stuck() { return stuck_.exchange(false, std::memory_order_acq_rel); }
  bool take(Report& report);
  // The connection is lost, and these words with it.
  void forget();

 private:
  Doorbell doorbell_;
  std::atomic<bool> want_{false};
  std::atomic<bool> home_{false};
  std::atomic<bool> usage_{false};
  std::atomic<bool> stuck_{false};
  std::atomic<bool> claim_{false};
  std::atomic<bool> ping_{false};
  std::mutex mutex_;
  std::vector<Report> reports_;
};

}  // namespace sharedgpu::session
