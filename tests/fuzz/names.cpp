// SPDX-License-Identifier: Apache-2.0
// Parses arbitrary text as the name of a GPU, of a list of GPUs, of devices, or of a step. The result is no
// name, or a name that is the same after writing and reading it again.
#include <string>

#include "config/settings.h"
#include "input.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const std::string_view text = fuzz::text_of(data, size);
  GpuUuid uuid;
  GpuUuid again;
  if (parse_gpu(text, uuid))
    fuzz::require(parse_gpu(format_gpu(uuid), again) && uuid == again, "a GPU reads otherwise");
  if (const auto step = parse_step(text))
    fuzz::require(parse_step(format_step(*step)) == step, "a step reads otherwise");
  const DeviceSet devices = parse_devices(text);
  std::string list;
  for (unsigned minor = 0; minor < 64; ++minor)
    if (devices.has(minor)) list += (list.empty() ? "" : ",") + std::to_string(minor);
  fuzz::require(parse_devices(list).bits == devices.bits, "devices read otherwise");
  GpuNames names;
  if (!parse_gpu_names(text, names).empty()) return 0;
  for (const std::uint32_t number : names.numbers)
    fuzz::require(names.has(number, {{9}}), "a GPU is not in its list");
  for (const GpuUuid& each : names.uuids) fuzz::require(names.has(~0u, each), "a GPU is not in its list");
  return 0;
}
