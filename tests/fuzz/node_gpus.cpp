// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the driver's file about a GPU. The result is no GPU, or a GPU with a type that
// Slurm accepts.
#include "config/node_gpus.h"

#include "input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  NodeGpu gpu;
  if (parse_gpu_information(text, gpu))
    fuzz::require(device_file(gpu) == "/dev/nvidia" + std::to_string(gpu.minor),
                  "a device file of another number");
  for (const std::string_view model : {std::string_view(gpu.model), text}) {
    const std::string type = gres_type(model);
    const std::string part = short_gres_type(model);
    fuzz::require(type.find(part) != std::string::npos, "the short type is no part of the type");
    fuzz::require(gres_type(type) == type, "a type has another type");
  }
  return 0;
}
