// SPDX-License-Identifier: Apache-2.0
// Fractions of time, as factors from 0 to 1. Pure.
#pragma once

#include "protocol/units.h"

namespace sharedgpu {

// A fraction of at least this value counts as 1, since rounding may make 1 smaller.
constexpr double kAll = 1 - 1e-9;

constexpr Nanoseconds scaled(Nanoseconds time, double factor) {
  return Nanoseconds(static_cast<Nanoseconds::rep>(static_cast<double>(time.count()) * factor));
}

// Returns true if a tenant with this limit and this share has reached its limit.
constexpr bool limit_binds(double due, double limit) { return limit < kAll && due >= limit * kAll; }

}  // namespace sharedgpu
