// SPDX-License-Identifier: Apache-2.0
// The time for which a tenant may leave the GPU idle while others wait before its turn is over.
//
// The length of a pause is not known in advance. Waiting for the duration of a handoff loses at most twice
// the time that would be lost if the length of the pause were known. If the pauses for which the tenant last
// lost its place were longer than the handoffs there and back, the next one probably is too, so the time is
// halved for each such pause in a row. One shorter pause restores the full time. Pure.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

constexpr unsigned kMostLongPauses = 3;

// `least`: the initial minimum, however fast handoffs are. `most`: the maximum of the handoff time.
constexpr Nanoseconds idle_patience(Nanoseconds handoff, unsigned long_pauses, Nanoseconds least,
                                    Nanoseconds most) {
  const int halved = 1 << std::min(long_pauses, kMostLongPauses);
  return std::max(least / halved, std::min(most, handoff / halved));
}

// `pause`: the rest of the pause, after the tenant had lost its place.
constexpr bool was_long(Nanoseconds pause, Nanoseconds handoff, Nanoseconds least) {
  return pause >= 2 * std::max(handoff, least);
}

}  // namespace sharedgpu
