// SPDX-License-Identifier: Apache-2.0
// Log lines on stderr. Thread-safe: each line is one write.
#pragma once

namespace sharedgpu {

// For errors, and for anything that is not as the user requested: always written.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

// For the actions of the interposer: written if SHAREDGPU_DEBUG=1.
[[gnu::format(printf, 1, 2)]] void debug(const char* format, ...);

}  // namespace sharedgpu
