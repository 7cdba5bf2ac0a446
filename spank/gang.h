// SPDX-License-Identifier: Apache-2.0
// Tells the arbiter of this node who coordinates the turns of a job on several nodes (docs/multi-node.md).
#pragma once

#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// Waits at most `patience`. Returns an empty string, or why the arbiter does not know it now: the job's turns
// on this node then begin and end by themselves.
std::string register_gang(const char* socket, const RegisterGang& gang, Nanoseconds patience);

}  // namespace sharedgpu
