// SPDX-License-Identifier: Apache-2.0
// The length of a turn while others wait.
//
// A fixed quantum rules if one is set. Otherwise turns are so long that the handoffs between them cost
// `max_overhead` of the time, and no longer than lets each waiter run again within `max_wait`. Where these
// contradict each other max_wait rules, but a turn is never shorter than a handoff: at most half of the time
// is lost. Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

struct TurnRules {
  Nanoseconds fixed{};  // zero: as follows
  double max_overhead = 0.05;
  Nanoseconds max_wait = std::chrono::seconds(30);
};

enum class TurnRule : std::uint8_t { fixed, swap_overhead, max_wait, work };

struct TurnLength {
  Nanoseconds length{};
  TurnRule rule = TurnRule::fixed;
  // The inputs from which it was computed.
  Nanoseconds handoff{};
  unsigned waiting_sets = 1;
};

// `handoff`: what the handoffs take on average in which nobody works. `waiting_sets`: how many running sets
// wait for their turn. `least`: not shorter than this, however quick handoffs are; messages and draining take
// some milliseconds whatever the memory.
TurnLength turn_length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets,
                       Nanoseconds least = std::chrono::milliseconds(100));

}  // namespace sharedgpu
