// SPDX-License-Identifier: Apache-2.0
// When a turn is over: after its length, or, where PolicyRules::lag_ends_turns, when the account of the
// tenant that leads it has fallen far enough. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// How much is left of a turn that was begun for `leader`, and that has lasted for `elapsed`.
Nanoseconds turn_left(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                      const TurnView& turn);

// How long until its account is so far below nothing as it may be, while it has the GPU. Negative where it is
// already, so that what it has had and this come to the same all the time: what is computed from them must
// not move.
Nanoseconds until_behind(const PolicyRules& rules, const TenantView& tenant, const TurnView& turn);

// A time about as long as `length`, in which nothing has to be broken off: for as many submissions as come
// next to it, and one at least. Zero: not known.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission);

}  // namespace sharedgpu
