// SPDX-License-Identifier: Apache-2.0
// The daemon's log. One line a message; what concerns a tenant names it. Any thread.
#pragma once

#include <string>
#include <string_view>

namespace sharedgpu::log {

// `level`: error, warning, info, debug or trace; `file`: where to append, or empty for standard error.
// Returns an empty string, or why the file cannot be written.
std::string open(const std::string& level, const std::string& file);

void error(std::string_view text);
void warning(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace sharedgpu::log
