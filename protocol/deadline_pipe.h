// SPDX-License-Identifier: Apache-2.0
// The pipe through which a program reports whether it has met its deadlines; see docs/design/scheduling.md.
#pragma once

#include <functional>
#include <string>

#include "protocol/environment.h"
#include "protocol/units.h"

namespace sharedgpu {

inline constexpr const char* kDeadlineVariables[] = {environment::kDeadline, environment::kDeadlineFd,
                                                     environment::kDeadlineRead};

// Makes the pipe, with both ends non-blocking and inheritable, and calls `set` for each environment variable
// that describes the pipe. Returns 0, or an errno value if it made no pipe.
int make_deadline_pipe(Nanoseconds deadline,
                       const std::function<void(const char* name, const std::string& value)>& set);

}  // namespace sharedgpu
