// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line for each message, naming the tenant concerned. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/status.h"

namespace sharedgpu::log {

// Opens the log. `level`: error, warning, info, debug, trace or off. `file`: the file to append to; empty:
// standard error. Fails if the file cannot be written.
Status open(const std::string& level, const std::string& file);

void error(std::string_view text);
void warning(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace sharedgpu::log
