// SPDX-License-Identifier: Apache-2.0
// Tells this node's arbiter which node coordinates the turns of a job on several nodes
// (docs/multi-node.md).
#pragma once

#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

// Waits at most `patience`. Returns an empty string, or an error message. After an error, the job's turns on
// this node begin and end independently of other nodes.
std::string register_gang(const char* socket, const RegisterGang& gang, Nanoseconds patience);

}  // namespace sharedgpu
