// SPDX-License-Identifier: Apache-2.0
// Lines on stderr. Safe from all threads: each line is one write.
#pragma once

namespace sharedgpu {

// Something is wrong, or not as the user asked: always written.
[[gnu::format(printf, 1, 2)]] void say(const char* format, ...);

// What the interposer does: written where SHAREDGPU_DEBUG=1.
[[gnu::format(printf, 1, 2)]] void debug(const char* format, ...);

}  // namespace sharedgpu
