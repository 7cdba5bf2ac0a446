// SPDX-License-Identifier: Apache-2.0
// Lines in the log that users can cause. No user fills it, see ComplaintLimits. Lines at level debug are not
// among them: a site that chooses that level wants them all.
//
// One thread, that of the event loop.
#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <string>

#include "arbiter/daemon/complaint_limits.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/system.h"

namespace sharedgpu {

class Complaints {
 public:
  Complaints(asio::io_context& loop, const System& system) : system_(system), timer_(loop) {}

  // Logs the line, or counts it as left out. `account`: the user that causes it, see account_of().
  void add(uid_t account, Cause cause, const std::string& line, void (*log)(std::string_view) = log::warning);

 private:
  void tell_of_left_out_later();

  const System& system_;
  ComplaintLimits limits_;
  asio::steady_timer timer_;
  bool timer_is_set_ = false;
};

}  // namespace sharedgpu
