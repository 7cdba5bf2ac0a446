// SPDX-License-Identifier: Apache-2.0
// Any text as a line of a process's cgroup file: a step with a job or a SLUID, or none.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "arbiter/daemon/cgroups.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto named = sharedgpu::step_folder({reinterpret_cast<const char*>(data), size});
  if (named && (named->job == 0u || !named->path.starts_with('/'))) std::abort();
  return 0;
}
