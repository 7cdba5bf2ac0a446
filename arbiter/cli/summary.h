// SPDX-License-Identifier: Apache-2.0
// Writes the line of `sharedgpu run --summary=yes` about the run's use of the GPU.
#pragma once

#include <functional>
#include <string>

#include "protocol/messages.h"

namespace sharedgpu::cli {

// Runs `execute` (which returns only on failure, with an exit status) in a child. After the child has ended,
// asks the arbiter for the tenant's times and sizes, and writes them to stderr as one line. Returns the
// child's exit status, or 1 if no child could be created, or dies of the signal that ended the child.
int run_with_summary(const std::function<int()>& execute, const std::string& socket, TenantId tenant);

}  // namespace sharedgpu::cli
