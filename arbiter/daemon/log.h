// SPDX-License-Identifier: Apache-2.0
// The daemon's log: one line for each message. A line about a tenant names the tenant. Any thread.
#pragma once

#include <string>
#include <string_view>

#include "protocol/status.h"

namespace sharedgpu::log {

// Opens the log, in place of an earlier one. `level`: error, warning, info, debug, trace or off. `file`: the
// file to append to; empty: standard error. Fails if the file cannot be written; then the log stays as it is.
//
// If standard error is a stream to systemd's journal, each line begins with its priority ("<4>", see
// sd-daemon(3)) instead of the time. If standard error is /dev/null or closed, the lines go to syslog. If the
// file is renamed or removed, as logrotate does, the next line begins a new file of the same name.
Status open(const std::string& level, const std::string& file);

void error(std::string_view text);
void warning(std::string_view text);
void info(std::string_view text);
void debug(std::string_view text);

}  // namespace sharedgpu::log
