// SPDX-License-Identifier: Apache-2.0
// Parts of time, as factors from 0 to 1. Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

// A part that is as good as all, however it was rounded.
constexpr double kAll = 1 - 1e-9;

constexpr Nanoseconds scaled(Nanoseconds time, double factor) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(static_cast<double>(time.count()) * factor));
}

// A tenant with that limit, to which so much is due, has reached the limit.
constexpr bool limit_binds(double due, double limit) { return limit < kAll && due >= limit * kAll; }

}  // namespace sharedgpu
