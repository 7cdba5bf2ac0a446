// SPDX-License-Identifier: Apache-2.0
// The pipe by which a program tells of its deadlines; docs/design/scheduling.md.
#pragma once

#include <functional>
#include <string>

#include "protocol/environment.h"
#include "protocol/units.h"

namespace sharedgpu {

inline constexpr const char* kDeadlineVariables[] = {environment::kDeadline, environment::kDeadlineFd,
                                                     environment::kDeadlineRead};

// Makes the pipe, non-blocking and to be inherited at both ends, and gives `set` the variables that tell of
// it. Returns 0 or an errno value; then there is none.
int make_deadline_pipe(Nanoseconds deadline,
                       const std::function<void(const char* name, const std::string& value)>& set);

}  // namespace sharedgpu
