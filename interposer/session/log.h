// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr. Thread-safe: each line is one write.
#pragma once

namespace sharedgpu {

// Writes a line. Call it only for an error, or if the interposer deviates from the user's request.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

// Writes a line about an action of the interposer, but only if SHAREDGPU_DEBUG=1.
[[gnu::format(printf, 1, 2)]] void debug(const char* format, ...);

}  // namespace sharedgpu
