// SPDX-License-Identifier: Apache-2.0
// The time for which a tenant may leave the GPU idle while others wait, before its turn is over.
//
// Nobody knows how long a pause will be. Waiting for as long as a handoff takes loses at most twice what
// would be lost if one knew. If the tenant's last pauses, each time that it lost its place for one, were
// longer than the handoffs there and back, the next one is likely to be, too: the time is halved for each of
// them. After one shorter pause it counts in full again. Pure.
#pragma once

#include <algorithm>

#include "protocol/units.h"

namespace sharedgpu {

constexpr unsigned kMostLongPauses = 3;

// `least`: to begin with no less than this, however quick handoffs are; never more than `most`, where that is
// more.
constexpr Nanoseconds idle_patience(Nanoseconds handoff, unsigned long_pauses, Nanoseconds least,
                                    Nanoseconds most) {
  const int halved = 1 << std::min(long_pauses, kMostLongPauses);
  return std::max(least / halved, std::min(most, handoff / halved));
}

// `pause`: what was left of it when the tenant had lost its place.
constexpr bool was_long(Nanoseconds pause, Nanoseconds handoff, Nanoseconds least) {
  return pause >= 2 * std::max(handoff, least);
}

}  // namespace sharedgpu
