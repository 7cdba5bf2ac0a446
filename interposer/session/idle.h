// SPDX-License-Identifier: Apache-2.0
// Detects that a session is idle, and decides when to report to the arbiter that the session is idle.
#pragma once

#include <algorithm>
#include <optional>

#include "protocol/units.h"

namespace sharedgpu::session {

class IdleWatch {
 public:
  // Returns true if the next check has to query the GPU, given the number of submissions so far. Two states
  // are known without a query: a process that has just submitted work is busy, and an idle process that has
  // submitted nothing since is still idle.
  bool must_ask(std::uint64_t passes) const { return passes != passes_ ? !watching_ : !idle_; }

  // Called regularly. `passes`: the submissions so far; `busy`: a submission is in progress, or the GPU works
  // for this process. Returns nullopt if no report is due, otherwise for how long the session has been idle.
  // Reports are due only while other tenants wait: every millisecond at first, later more rarely.
  std::optional<Nanoseconds> look(Nanoseconds now, std::uint64_t passes, bool busy, bool others_wait) {
    if (busy || (watching_ && passes != passes_)) {
      *this = {};
      watching_ = true;
      passes_ = passes;
      return std::nullopt;
    }
    if (!idle_) {
      watching_ = idle_ = true;
      since_ = now;
      passes_ = passes;
    }
    if (!others_wait) said_ = {};
    const Nanoseconds idle = now - since_;
    if (!others_wait || idle < said_ + std::max<Nanoseconds>(std::chrono::milliseconds(1), said_ / 4))
      return std::nullopt;
    said_ = idle;
    return idle;
  }

  // Called when the gate is closed.
  void stop() { *this = {}; }

 private:
  bool watching_ = false;
  bool idle_ = false;
  Nanoseconds since_{};  // time at which the session was first seen idle
  Nanoseconds said_{};
  std::uint64_t passes_ = 0;
};

}  // namespace sharedgpu::session
