// SPDX-License-Identifier: Apache-2.0
// The reports of deadlines of CudaMon's programs: lines that they write to stderr.
#pragma once

#include <functional>

namespace sharedgpu::cli {

// Runs `execute` (which does not return, but with an exit status where it fails) in a child, and passes on
// what that writes to stderr; the lines that tell of deadlines go to the pipe, too. Returns the child's exit
// status, or dies of the signal that has ended it.
int run_with_stderr_read(const std::function<int()>& execute);

}  // namespace sharedgpu::cli
