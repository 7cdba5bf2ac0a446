// SPDX-License-Identifier: Apache-2.0
// Watches whether a session is idle, and decides when to tell the arbiter so.
#pragma once

#include <algorithm>
#include <optional>

#include "protocol/units.h"

namespace sharedgpu::session {

class IdleWatch {
 public:
  // Whether the next look has to know of the GPU if there have been `passes` submissions by now: who submits
  // is busy, and who was idle stays so until then.
  bool must_ask(std::uint64_t passes) const { return passes != passes_ ? !watching_ : !idle_; }

  // Looks again: `passes` submissions so far, `busy` where one is under way or the GPU works for us. Returns
  // how long nothing has happened, where it is time to say so: while others wait, every millisecond at
  // first, later more rarely.
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

  // The gate is closed.
  void stop() { *this = {}; }

 private:
  bool watching_ = false;
  bool idle_ = false;
  Nanoseconds since_{};  // when it was first seen idle
  Nanoseconds said_{};
  std::uint64_t passes_ = 0;
};

}  // namespace sharedgpu::session
