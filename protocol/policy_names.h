// SPDX-License-Identifier: Apache-2.0
// The scheduling policies, by the names that Policy= in sharedgpu.conf has for them; arbiter/policy/policy.h
// says how to add one.
#pragma once

#include <string_view>

namespace sharedgpu {

inline constexpr std::string_view kPolicies[] = {"round-robin", "fcfs",    "shortest-first", "credit",
                                                 "priority",    "elastic", "deadline"};

}  // namespace sharedgpu
