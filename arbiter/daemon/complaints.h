// SPDX-License-Identifier: Apache-2.0
// Log lines that users can cause, limited so that no user fills the log, see ComplaintLimits. Lines of level
// debug are not limited, because a site that logs at this level wants all of them.
//
// Event-loop thread only.
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

  // Logs the line, or counts it as left out. `account`: the user that caused the line, see account_of().
  void add(uid_t account, Cause cause, const std::string& line, void (*log)(std::string_view) = log::warning);

 private:
  void tell_of_left_out_later();

  const System& system_;
  ComplaintLimits limits_;
  asio::steady_timer timer_;
  bool timer_is_set_ = false;
};

}  // namespace sharedgpu
