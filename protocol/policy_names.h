// SPDX-License-Identifier: Apache-2.0
// The names of the scheduling policies, which are also the values of Policy= in sharedgpu.conf;
// arbiter/policy/policy.h describes how to add a policy.
#pragma once

#include <string_view>

namespace sharedgpu {

inline constexpr std::string_view kPolicies[] = {"round-robin", "fcfs",    "shortest-first", "credit",
                                                 "priority",    "elastic", "deadline"};
// The policies under which a tenant's share, priority or deadline has an effect.
inline constexpr std::string_view kPoliciesWithShares[] = {"elastic", "deadline"};
inline constexpr std::string_view kPoliciesWithPriorities[] = {"priority", "deadline"};
inline constexpr std::string_view kPoliciesWithDeadlines[] = {"deadline"};

}  // namespace sharedgpu
