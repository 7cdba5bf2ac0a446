// SPDX-License-Identifier: Apache-2.0
// Whether a process is stopped: by signals or a debugger, or frozen with its cgroup.
//
// Any thread; no exceptions.
#pragma once

#include <sys/types.h>

#include <string>

namespace sharedgpu {

// Whether none of its threads can run. What cannot be read, as of a process that has ended, is not stopped.
// /proc and /sys are looked for in the folder `root`.
bool is_stopped(pid_t pid, const std::string& root = {});

}  // namespace sharedgpu
