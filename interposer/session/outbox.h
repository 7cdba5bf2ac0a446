// SPDX-License-Identifier: Apache-2.0
// The messages from the threads of this process to the arbiter. Only the service thread sends them, so a slow
// arbiter blocks no other thread. A message other than a Report is sent only once, even if threads request it
// several times before it is sent.
//
// Thread-safe; want() and usage() do not block.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <vector>

#include "interposer/session/doorbell.h"
#include "protocol/messages.h"

namespace sharedgpu::session {

// A report on the turn. The service thread adds the newest MemoryUse when it sends the report.
struct Report {
  MessageType type = MessageType::invalid;  // ready, released, idle or give_back
  Epoch epoch;
  std::uint64_t order = 0;   // number of the order that a `released` report answers
  Nanoseconds span{};        // overuse or idle time
  Nanoseconds submission{};  // SubmissionClock::longest(), only for `released`
};

// Removes the oldest element from the queue, and returns this element; nullopt if the queue is empty.
template <class Element>
std::optional<Element> take_front(std::mutex& mutex, std::vector<Element>& queue) {
  const std::lock_guard lock(mutex);
  if (queue.empty()) return std::nullopt;
  const Element front = queue.front();
  queue.erase(queue.begin());
  return front;
}

class Outbox {
 public:
  // Wakes the service thread; rung when there is a message to send.
  Doorbell& doorbell() { return doorbell_; }

  void post(const Report& report);
  void want();
  // Requests the restore of evicted memory, because the job needs the host memory that the evicted contents
  // occupy.
  void want_home();
  void usage(bool stuck);
  // Sends a Usage that requests growth which has already happened; no thread waits for the answer.
  void claim();
  // Sends a query that a live arbiter answers immediately.
  void ping();
  // Wakes the service thread to send a request that was added to Requests.
  void poke() { doorbell_.ring(); }

  // Only the service thread calls the following functions.
  enum class Flag : unsigned { want, home, usage, stuck, claim, ping };
  bool take(Flag flag) { return (flags_.fetch_and(~bit(flag), std::memory_order_acq_rel) & bit(flag)) != 0; }
  std::optional<Report> take() { return take_front(mutex_, reports_); }
  // Drops all messages, since the connection is lost.
  void forget();

 private:
  static constexpr unsigned bit(Flag flag) { return 1u << static_cast<unsigned>(flag); }
  // Returns true if the flag was not set.
  bool set(Flag flag) { return (flags_.fetch_or(bit(flag), std::memory_order_acq_rel) & bit(flag)) == 0; }

  Doorbell doorbell_;
  std::atomic<unsigned> flags_{0};  // a bit for each Flag: messages to send besides the reports
  std::mutex mutex_;
  std::vector<Report> reports_;
};

}  // namespace sharedgpu::session
