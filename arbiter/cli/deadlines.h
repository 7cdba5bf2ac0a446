// SPDX-License-Identifier: Apache-2.0
// How a command under `sharedgpu run --deadline` tells of its deadlines: by a pipe that it inherits, or by
// the lines that CudaMon's programs write to stderr.
#pragma once

#include <functional>
#include <string>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Makes the pipe, both ends to be inherited, and the variables that tell of it. Returns 0 or an errno value.
int make_deadline_pipe(Nanoseconds deadline);
// Of an outer run: its deadlines are not this one's.
void forget_deadline_pipe();

// Runs `execute` (which does not return, but with an exit status where it fails) in a child, and passes on
// what that writes to stderr; the lines that tell of deadlines go to the pipe, too. Returns the child's exit
// status, or dies of the signal that has ended it.
int run_with_stderr_read(const std::function<int()>& execute);

}  // namespace sharedgpu::cli
