// SPDX-License-Identifier: Apache-2.0
// Checks the numbers and names in peers' messages. A peer that sends invalid values violates the protocol.
//
// Pure functions; any thread.
#pragma once

#include "protocol/messages.h"

namespace sharedgpu {

// The upper limit of memory sizes in messages: no device, host or budget has this much memory.
inline constexpr Bytes kLargest{std::uint64_t{1} << 50};

bool is_valid(const Hello& hello);
bool is_valid(const Usage& usage);
bool is_valid(const Ready& ready);
bool is_valid(const Released& released);
bool is_valid(const Idle& idle);
bool is_valid(const RefusalQuery& query);
bool is_valid(const Deadlines& deadlines);
bool is_valid(const RunRequest& request);
bool is_valid(const Attach& attach);
bool is_valid(const RegisterJob& job);
bool is_valid(const RegisterGang& gang);
bool is_valid(const EndJob& end);
bool is_valid(const SuspendJob& job);

}  // namespace sharedgpu
