// SPDX-License-Identifier: Apache-2.0
// The costs of away memory for a session so far (protocol/messages.h, Exchanges). Thread-safe; no call waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "protocol/messages.h"

namespace sharedgpu::session {

class ExchangeTotals {
 public:
  // An exchange has moved handles. Moving them took `took`, and `moved` has the bytes that were copied.
  void add_move(Traffic moved, Nanoseconds took) {
    const Bytes copied = std::max(moved.evicted, moved.restored);
    const double seconds = std::chrono::duration<double>(took).count();
    const Bytes speed{seconds > 0 ? static_cast<std::uint64_t>(static_cast<double>(copied.count) / seconds)
                                  : 0};
    add({.moved = moved, .moving = took, .waited = {}, .copied = copied, .fastest = speed, .slowed = {}});
  }
  // A thread of the program has waited for an exchange.
  void add_wait(Nanoseconds waited) { add({.waited = waited}); }
  // A launch is estimated to take longer by `slowed`, because operands are away.
  void add_slowed(Nanoseconds slowed) { add({.slowed = slowed}); }

  Exchanges read() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

 private:
  void add(const Exchanges& more) {
    const std::lock_guard lock(mutex_);
    totals_ = totals_ + more;
  }

  mutable std::mutex mutex_;  // guards totals_
  Exchanges totals_;
};

}  // namespace sharedgpu::session
