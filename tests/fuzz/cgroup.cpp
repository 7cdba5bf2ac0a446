// SPDX-License-Identifier: Apache-2.0
// Any text as a process's cgroup file: a step with a job, or none.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "arbiter/daemon/cgroups.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto step = sharedgpu::step_of_cgroup({reinterpret_cast<const char*>(data), size});
  if (step && step->job == 0) std::abort();
  return 0;
}
