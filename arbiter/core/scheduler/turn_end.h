// SPDX-License-Identifier: Apache-2.0
// When a turn is over: after its length, or, where PolicyRules::lag_ends_turns, when the account of the
// tenant that leads it has fallen far enough. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The rest of a turn that was begun for `leader` and has lasted for `elapsed`.
Nanoseconds turn_left(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                      const TurnView& turn);

// The time until its account reaches its lower bound, while it has the GPU. Negative if the account is below
// that: the sum of this and of the time that the tenant has had stays the same, so that results computed from
// it do not move.
Nanoseconds until_behind(const PolicyRules& rules, const TenantView& tenant, const TurnView& turn);

// A time about as long as `length`, in which nothing has to be broken off: for as many submissions as come
// next to it, and one at least. Zero: not known.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission);

}  // namespace sharedgpu
