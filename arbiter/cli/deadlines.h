// SPDX-License-Identifier: Apache-2.0
// Reads the deadline reports of CudaMon programs: lines that they write to stderr.
#pragma once

#include <functional>

namespace sharedgpu::cli {

// Runs `execute` (which returns only on failure, with an exit status) in a child, and passes on what the
// child writes to stderr. For each deadline that a line reports, this process writes a report to the deadline
// pipe. Returns the child's exit status, or 1 if no child could be created, or dies of the signal that ended
// the child.
int run_with_stderr_read(const std::function<int()>& execute);

}  // namespace sharedgpu::cli
