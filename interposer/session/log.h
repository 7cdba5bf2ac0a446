// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr. Thread-safe: each line is one write.
#pragma once

namespace sharedgpu {

// Writes a line. Call it only for an error, or if the interposer deviates from the user's request.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

// Writes a line that the user did not ask for, such as a notice of the arbiter. Writes nothing unless
// standard error still refers to the same file as at the call of keep_stderr(); see log.cpp.
[[gnu::format(printf, 1, 2)]] void mention(const char* format, ...);
// Called when a session begins. After a call has succeeded, further calls do nothing.
void keep_stderr();

// Writes a line about an action of the interposer, but only if SHAREDGPU_DEBUG=1.
[[gnu::format(printf, 1, 2)]] void debug(const char* format, ...);

}  // namespace sharedgpu
