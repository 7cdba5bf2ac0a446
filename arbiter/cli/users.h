// SPDX-License-Identifier: Apache-2.0
// Names of users.
#pragma once

#include <cstdint>
#include <string>

namespace sharedgpu::cli {

// Returns the user's name, or the number as text if the user has no name on this host. Looks up each user
// once.
std::string user_name(std::uint32_t uid);

}  // namespace sharedgpu::cli
