// SPDX-License-Identifier: Apache-2.0
// The event loop's time, divided among the users that send messages: no user delays another by more than a
// turn of about half a millisecond, however many connections it has and whatever it sends.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <functional>
#include <utility>

#include "arbiter/daemon/fair_queue.h"
#include "arbiter/daemon/system.h"

namespace sharedgpu {

class Schedule {
 public:
  // Does one piece of work, such as to handle a message. True: there may be more.
  using Work = std::function<bool()>;

  Schedule(asio::io_context& loop, const System& system);

  // Does the work for that user when its turn comes, and again as long as there may be more.
  void add(uid_t user, Work work);

 private:
  void pass_soon();
  void pass();
  Nanoseconds serve_one(Nanoseconds left);

  asio::io_context& loop_;
  const System& system_;
  FairQueue<Work> waiting_;
  bool pass_is_due_ = false;
};

}  // namespace sharedgpu
