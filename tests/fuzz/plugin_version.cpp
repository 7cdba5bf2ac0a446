// SPDX-License-Identifier: Apache-2.0
// Reads arbitrary bytes as a plugin of Slurm.
#include "arbiter/cli/doctor.h"
#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static_cast<void>(sharedgpu::doctor::plugin_version(sharedgpu::fuzz::text_of(data, size)));
  return 0;
}
