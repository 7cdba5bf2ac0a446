// SPDX-License-Identifier: Apache-2.0
// The input has three lines: arbitrary texts for SwapPerUnit=, for GpuMemory= and for the types of units. The
// arbiter must accept the resulting memory. The resulting memory must be the sum of the memory of the first
// type and the memory of the other types.
#include "spank/unit_types.h"

#include "arbiter/daemon/validity.h"
#include "input.h"
#include "protocol/split.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  const auto lines = split(fuzz::text_of(data, size), '\n');
  if (lines.size() < 3) return 0;
  Settings settings;
  const auto sizes = parse_typed_sizes(lines[0], true);
  if (!sizes) return 0;
  settings.swap_per_unit = *sizes;
  settings.gpu_memory = parse_typed_sizes(lines[1], false).value_or(TypedSizes());
  const std::string_view types = lines[2];

  RegisterJob job{.step = {.job = 1}};
  job.brought = memory_of_units(types, settings);
  fuzz::require(is_valid(job), "the arbiter refuses the memory");
  const std::size_t comma = types.find(',');
  if (comma == types.npos || job.brought == Bytes{} || job.brought == RegisterJob::kUnlimited) return 0;
  const Bytes first = memory_of_units(types.substr(0, comma), settings);
  const Bytes others = memory_of_units(types.substr(comma + 1), settings);
  fuzz::require(job.brought == std::min(first + others, RegisterJob::kMostBrought),
                "not the sum of the types");
  return 0;
}
