// SPDX-License-Identifier: Apache-2.0
// The length of a turn while other tenants wait.
//
// A fixed quantum is used if one is set. Otherwise turns are long enough that handoffs take at most the
// fraction `max_overhead` of the time, and short enough that each waiting tenant runs again within
// `max_wait`. If both cannot hold, max_wait decides, but a turn is never shorter than a handoff or `least`.
// So handoffs take at most half of the time. Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

struct TurnRules {
  Nanoseconds fixed{};  // zero: computed from the fields below
  double max_overhead = 0.05;
  Nanoseconds max_wait = std::chrono::seconds(30);
};

enum class TurnRule : std::uint8_t { fixed, swap_overhead, max_wait, work };

struct TurnLength {
  Nanoseconds length{};
  TurnRule rule = TurnRule::fixed;
  // The values from which the length was computed.
  Nanoseconds handoff{};
  unsigned waiting_sets = 1;
};

// `handoff`: mean time of a handoff, during which no tenant uses the GPU. `waiting_sets`: running sets that
// wait for their turn. `least`: the minimum length of a turn even if handoffs are quick, since messages and
// draining take some milliseconds.
TurnLength turn_length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets,
                       Nanoseconds least = std::chrono::milliseconds(100));

}  // namespace sharedgpu
