// SPDX-License-Identifier: Apache-2.0
// The end of a turn. A turn is over after its length. With PolicyRules::lag_ends_turns, and if no fixed
// length is set, the account of the leader (the tenant for which the turn began) decides instead. The turn is
// then over when the leader's debt has reached allowance() (entitlement.h), or after an upper bound. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// Returns the rest of a turn that was begun for `leader` and has lasted for `elapsed`.
Nanoseconds turn_left(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                      const TurnView& turn);

// Returns the time for which the tenant can have the GPU before its debt reaches allowance() (entitlement.h).
// The result is negative if the debt is larger already. While the tenant has the GPU, the sum of the elapsed
// time and the returned time is constant, so the computed end of the turn does not drift.
Nanoseconds until_behind(const PolicyRules& rules, const TenantView& tenant, const TurnView& turn);

// Returns a time close to `length` in which a whole number of submissions fits, at least one. `submission` is
// the duration of a submission; if it is zero (unknown), the result is `length`.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission);

}  // namespace sharedgpu
