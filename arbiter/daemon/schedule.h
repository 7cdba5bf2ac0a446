// SPDX-License-Identifier: Apache-2.0
// Divides the event loop's time among the users that send messages. Users are served in turns of about half a
// millisecond. No user delays another user by more than one turn, even with many connections and messages. In
// the long run, no user but root gets more than a fifth of the time, even if no other user sends messages.
// The arbiter must leave the host's processors to the tenants. All sessions of a large node together use
// about a hundredth of the event loop's time (tests/campaign/load). If all these sessions start at once,
// serving them takes a second or two. Accepting connections is not part of any user's turn, see server.h.
//
// Event-loop thread only.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <utility>

#include "arbiter/daemon/fair_queue.h"
#include "arbiter/daemon/system.h"
#include "arbiter/daemon/token_bucket.h"

namespace sharedgpu {

class Schedule {
 public:
  // Seconds of the loop's time that a user may use in a burst, and on average in each second.
  static constexpr double kMostAtOnce = 2;
  static constexpr double kMostASecond = 0.2;

  // Does one piece of work, such as handling a message. Returns true if there may be more work of this kind.
  using Work = std::function<bool()>;

  Schedule(asio::io_context& loop, const System& system);

  // Calls `work` when the user's turn comes, and again as long as it returns true.
  void add(uid_t user, Work work);

 private:
  void pass_soon();
  void pass();
  Nanoseconds serve_one(Nanoseconds left);
  void charge(uid_t user, Nanoseconds time);

  asio::io_context& loop_;
  const System& system_;
  FairQueue<Work> waiting_;
  TokenBuckets<uid_t> seconds_{kMostAtOnce, kMostASecond};
  bool pass_is_due_ = false;
};

}  // namespace sharedgpu
