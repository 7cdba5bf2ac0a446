// SPDX-License-Identifier: Apache-2.0
// Watches a session that others wait for, and decides when to tell the arbiter that it is idle.
#pragma once

#include <algorithm>
#include <optional>

#include "protocol/units.h"

namespace sharedgpu::session {

class IdleWatch {
 public:
  // Looks again: `passes` submissions so far, `busy` where one is under way or the GPU works for us. Returns
  // how long nothing has happened, where it is time to say so: every 20 ms at first, later more rarely.
  std::optional<Nanoseconds> look(Nanoseconds now, std::uint64_t passes, bool busy) {
    if (busy || !watching_ || passes != passes_) {
      *this = {};
      watching_ = true;
      since_ = now;
      passes_ = passes;
      return std::nullopt;
    }
    Nanoseconds idle = now - since_;
    if (idle < said_ + std::max<Nanoseconds>(std::chrono::milliseconds(20), said_ / 4)) return std::nullopt;
    said_ = idle;
    return idle;
  }

  // Nobody waits any more.
  void stop() { *this = {}; }

 private:
  bool watching_ = false;
  Nanoseconds since_{};
  Nanoseconds said_{};
  std::uint64_t passes_ = 0;
};

}  // namespace sharedgpu::session
