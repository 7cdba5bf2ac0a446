// SPDX-License-Identifier: Apache-2.0
// The end of a turn: a turn is over after its length or, with PolicyRules::lag_ends_turns, when the account
// of the tenant for which it began has fallen by the policy's limit below that of a waiting tenant. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The rest of a turn that was begun for `leader` and has lasted for `elapsed`.
Nanoseconds turn_left(const PolicyRules& rules, const TenantView& leader, Nanoseconds elapsed,
                      const TurnView& turn);

// The time until the tenant's account reaches its lower bound while it has the GPU. Negative if the account
// is below the bound. The sum of this time and the time that the tenant has had is constant, so results
// computed from it do not drift.
Nanoseconds until_behind(const PolicyRules& rules, const TenantView& tenant, const TurnView& turn);

// A time close to `length` that holds a whole number of submissions, at least one. Zero if `submission` is
// unknown.
Nanoseconds for_whole_submissions(Nanoseconds length, Nanoseconds submission);

}  // namespace sharedgpu
