// SPDX-License-Identifier: Apache-2.0
// The hard limit on a tenant's time: a tenant that has used up its limit waits, even if nobody else wants the
// GPU. Its account is a token bucket that fills at the rate of the limit. A tenant whose limit does not bind
// is not throttled. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The time for which `waiting` may not run yet.
Nanoseconds throttled_for(const PolicyRules& rules, const TenantView& waiting);
// The time for which `running` may continue, whether or not others wait; max(): no limit binds. Zero or less:
// its turn ends.
Nanoseconds budget_left(const PolicyRules& rules, const TenantView& running, const TurnView& turn);

}  // namespace sharedgpu
