// SPDX-License-Identifier: Apache-2.0
// The policies by name. To add one:
//  1. Give it a name in protocol/policy_names.h: the configuration, the tests and the simulator go by that
//  list.
//  2. Write it in a file of its own in this folder, a class that derives from Policy. Its header says how
//  long
//     a tenant may wait at most, and what it sets of the scheduler's mechanisms.
//  3. Enter name and class into the table in registry.cpp. It does not compile while the two lists differ.
#pragma once

#include <memory>
#include <string_view>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The policy of that name; null: there is none.
std::unique_ptr<Policy> make_policy(std::string_view name);

}  // namespace sharedgpu
