// SPDX-License-Identifier: Apache-2.0
// The terminal of `sharedgpu top`.
#pragma once

#include <functional>
#include <string>

#include "arbiter/cli/top_view.h"
#include "protocol/units.h"

namespace sharedgpu::cli {

// Shows `top` on the whole terminal until the user ends it. Calls `read` at the beginning and then whenever
// `interval` has passed. Returns an empty string, or the reason why the terminal cannot be used.
std::string run_screen(Top& top, Nanoseconds interval, const std::function<void()>& read);

// Returns the time of day as HH:MM:SS, for the first line of the text.
std::string clock_now();

}  // namespace sharedgpu::cli
