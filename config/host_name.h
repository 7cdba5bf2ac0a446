// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace sharedgpu {

// The name of this host without its domain; empty if the host has no name. Thread-safe.
std::string host_name();

}  // namespace sharedgpu
