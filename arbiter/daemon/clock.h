// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ctime>

#include "protocol/units.h"

namespace sharedgpu {

// The clock of everything that outlives the arbiter: CLOCK_BOOTTIME.
inline Nanoseconds now() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

// When this boot of the host began, after 1970, by what the clock on the wall says now.
inline Nanoseconds booted() {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec) - now();
}

}  // namespace sharedgpu
