// SPDX-License-Identifier: Apache-2.0
// The time for which a tenant may leave the GPU idle while others wait, before its turn is over.
//
// The length of a pause is not known in advance. Suppose that the arbiter waits for the duration of a handoff
// before it ends the turn. Then it loses at most twice the time that it would lose if it knew the length of
// the pause. A pause is long if it lasts at least as long as two handoffs: to another tenant and back. A long
// pause is often followed by another long pause, so each long pause in a row halves the time for which the
// arbiter waits. A shorter pause restores the full time. Pure.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

constexpr unsigned kMostLongPauses = 3;

// Returns how long the arbiter waits for an idle tenant. Halves `least` and `handoff` for each long pause in
// a row (at most kMostLongPauses), bounds the halved handoff by `most`, and returns the larger of the two.
constexpr Nanoseconds idle_patience(Nanoseconds handoff, unsigned long_pauses, Nanoseconds least,
                                    Nanoseconds most) {
  const int halved = 1 << std::min(long_pauses, kMostLongPauses);
  return std::max(least / halved, std::min(most, handoff / halved));
}

// Returns true if a pause was long. `pause` is the part of the pause after the tenant had left the running
// set.
constexpr bool was_long(Nanoseconds pause, Nanoseconds handoff, Nanoseconds least) {
  return pause >= 2 * std::max(handoff, least);
}

}  // namespace sharedgpu
