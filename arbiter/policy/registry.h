// SPDX-License-Identifier: Apache-2.0
// The policies by name. policy.h lists the steps to add a policy.
#pragma once

#include <memory>
#include <string_view>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// Returns the policy with the given name; null if there is none.
std::unique_ptr<Policy> make_policy(std::string_view name);

}  // namespace sharedgpu
