// SPDX-License-Identifier: Apache-2.0
// The clock of the interposer, and sleep. Thread-safe.
#pragma once

#include <ctime>

#include "protocol/units.h"

namespace sharedgpu::gate {

// Reads CLOCK_BOOTTIME, which continues while the machine is suspended.
inline Nanoseconds now() {
  timespec time = {};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return std::chrono::seconds(time.tv_sec) + Nanoseconds(time.tv_nsec);
}

// Sleeps for `time`. A signal may end the sleep early.
inline void nap(Nanoseconds time) {
  const timespec span = {.tv_sec = static_cast<time_t>(time.count() / 1'000'000'000),
                         .tv_nsec = static_cast<long>(time.count() % 1'000'000'000)};
  nanosleep(&span, nullptr);
}

}  // namespace sharedgpu::gate
