// SPDX-License-Identifier: Apache-2.0
// Asks the arbiter for the text of `sharedgpu status --json`.
#pragma once

#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Returns an empty string, or the reason why there is no answer. Blocks for `patience` at most.
std::string ask_status(const std::string& socket, Nanoseconds patience, std::string& text);

}  // namespace sharedgpu::cli
