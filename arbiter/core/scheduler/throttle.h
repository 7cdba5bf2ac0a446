// SPDX-License-Identifier: Apache-2.0
// The hard limit on a tenant's time: one that has had the part of the time that its limit leaves it waits,
// also while nobody else wants the GPU. Its account is the bucket: it fills at the limit. A tenant whose
// limit does not bind is not throttled. Pure.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// For how long `waiting` may not run yet.
Nanoseconds throttled_for(const PolicyRules& rules, const TenantView& waiting);
// For how long `running` may go on, whether or not others wait; max(): no limit binds. Zero or less: its turn
// ends.
Nanoseconds budget_left(const PolicyRules& rules, const TenantView& running, const TurnView& turn);

}  // namespace sharedgpu
