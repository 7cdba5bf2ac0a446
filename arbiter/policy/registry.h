// SPDX-License-Identifier: Apache-2.0
// The policies by name. policy.h says how to add one.
#pragma once

#include <memory>
#include <string_view>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The policy of that name; null if there is none.
std::unique_ptr<Policy> make_policy(std::string_view name);

}  // namespace sharedgpu
