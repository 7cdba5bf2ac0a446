// SPDX-License-Identifier: Apache-2.0
// Asks the arbiter for the text of `sharedgpu status --json`.
#pragma once

#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Returns an empty string, or the reason why there is no answer. Waits at most `patience` for a connection,
// and at most `patience` for each reply. Asks again, at most four times, if the arbiter has emptied the file
// of the reply.
std::string ask_status(const std::string& socket, Nanoseconds patience, std::string& text);

}  // namespace sharedgpu::cli
