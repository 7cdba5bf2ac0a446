// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the cgroup file of a process. The result is the process's memory cgroup, and the
// Slurm step of the process, if there is one. A step has a job number or a SLUID.
#include "arbiter/daemon/cgroups.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto named = step_folder(fuzz::text_of(data, size));
  fuzz::require(!named || named->job != 0u, "a step without a job");
  fuzz::require(!named || named->path.starts_with('/'), "a folder without a path");
  const auto memory = memory_group(fuzz::text_of(data, size));
  fuzz::require(!memory || memory->path != "/", "the topmost group by two names");
  return 0;
}
