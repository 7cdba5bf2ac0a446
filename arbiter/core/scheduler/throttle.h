// SPDX-License-Identifier: Apache-2.0
// The hard limit on a tenant's time: a tenant that has used up its limit waits, even if no other tenant wants
// the GPU. The tenant's account is a token bucket that fills at the rate of the limit. A tenant is not
// throttled if its share is below its limit. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// Returns how long the tenant `waiting` must still wait before it may run.
Nanoseconds throttled_for(const PolicyRules& rules, const TenantView& waiting);
// Returns how long the tenant `running` may continue under its limit; max(): no limit applies. Zero or less:
// the tenant has to leave.
Nanoseconds budget_left(const PolicyRules& rules, const TenantView& running, const TurnView& turn);

}  // namespace sharedgpu
