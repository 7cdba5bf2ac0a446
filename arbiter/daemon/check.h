// SPDX-License-Identifier: Apache-2.0
// sharedgpud --check FILE: checks a file of settings without starting an arbiter.
#pragma once

#include <string>
#include <vector>

#include "arbiter/daemon/system.h"
#include "config/settings.h"

namespace sharedgpu {

// Returns a line for each value that sharedgpu.conf may have but that does not fit this host, such as
// "AdminUsers: no user 'bob'".
std::vector<std::string> doubts_about(const Settings& settings, const System& system);

// Prints each error and each line of doubts_about() to standard error. If there are no errors, prints "FILE:
// ok" with the values that differ from the defaults. Returns the exit status: 0 if the file has no error, 1
// if it has an error, 2 if the file cannot be read or standard output cannot be written. Lines of
// doubts_about() do not change the status, even if they tell why the arbiter would not start.
int check_settings(const std::string& path);

}  // namespace sharedgpu
