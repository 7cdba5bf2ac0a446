// SPDX-License-Identifier: Apache-2.0
// When a process gives its turn back before that is over: its next submission would not end in time, and what
// the GPU works on after a turn is overuse, which is paid back. After the token
// revocation of Gemini ("Enabling Multi-Tenant GPU Sharing Based on Kernel Burst Estimation"). A pure rule.
// One thread at a time.
#pragma once

#include <cstdint>

#include "protocol/units.h"

namespace sharedgpu::gate {

class TurnRest {
 public:
  // Before a submission, which would be done `takes` from now. `turn`: the value of the open gate, another
  // one for each turn; `ends`: when it does, zero where that is open; `made_in`: in which turn the last
  // submission was made, also one that had waited for it at the gate. The first submission of a turn is made
  // however long it takes: it may be longer than any turn. And who gives a turn back and is not taken at its
  // word does not ask again.
  bool give_back(std::uint32_t turn, std::uint32_t made_in, Nanoseconds ends, Nanoseconds now,
                 Nanoseconds takes) {
    if (turn != turn_) {
      turn_ = turn;
      given_back_ = {};
      if (made_in != turn) return false;
    }
    if (ends == Nanoseconds{} || ends == given_back_ || now + takes <= ends) return false;
    given_back_ = ends;
    return true;
  }

 private:
  std::uint32_t turn_ = 0;
  Nanoseconds given_back_{};  // the turn that ends then
};

}  // namespace sharedgpu::gate
