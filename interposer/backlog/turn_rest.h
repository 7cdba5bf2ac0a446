// SPDX-License-Identifier: Apache-2.0
// Decides when a process yields its turn early. The process yields the turn if its next submission would not
// finish before the turn ends, since GPU work after the end of a turn is overuse, which is charged. Modelled
// on the token revocation of Gemini ("Enabling Multi-Tenant GPU Sharing Based on Kernel Burst Estimation"). A
// pure rule. Not thread-safe.
#pragma once

#include <cstdint>

#include "protocol/units.h"

namespace sharedgpu::backlog {

class TurnRest {
 public:
  // Called before a submission that would finish at the time `now` + `takes`. Returns true if the turn should
  // be yielded. `turn` identifies the turn: it is the value of the open gate, which differs for each turn.
  // `ends` is the end of the turn; zero if the turn has no fixed end. `made_in` is the turn in which the last
  // submission passed the gate, even if the submission had waited at the gate before. The first submission of
  // a turn is always made, since it may be longer than any turn. The function returns true at most once for
  // each value of `ends`, even if the arbiter does not take the turn back.
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
  // The end of the current turn if the process has yielded this turn; otherwise zero.
  Nanoseconds given_back_{};
};

}  // namespace sharedgpu::backlog
