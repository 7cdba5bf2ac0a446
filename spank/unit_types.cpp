// SPDX-License-Identifier: Apache-2.0
#include "spank/unit_types.h"

#include <algorithm>
#include <optional>

#include "protocol/messages.h"
#include "protocol/split.h"

namespace sharedgpu {

// If SwapPerUnit= has no entry for one of the types, the step has no limit of host memory: the job_submit
// plugin adds no memory for such units.
Bytes memory_of_units(std::string_view types, const Settings& settings) {
  const TypedSizes& sizes = settings.swap_per_unit;
  if (types.empty() || sizes.entries.empty() || sizes.common()) return {};
  const UnitMemory unit_memory(sizes, settings.gpu_memory, settings.units_per_gpu);
  Bytes sum;
  for (const std::string_view word : split(types, ',')) {
    const std::size_t colon = word.rfind(':');
    const auto count = parse_number<std::uint32_t>(word.substr(std::min(colon, word.size() - 1) + 1));
    if (colon == word.npos || colon == 0 || !count || *count > JobOptions::kMostUnits) return {};
    const std::string_view type = word.substr(0, colon);
    if (sizes.find(type) == nullptr) return RegisterJob::kUnlimited;
    const std::optional<Bytes> size = unit_memory.of(type);
    if (!size || size->count > RegisterJob::kMostBrought.count / JobOptions::kMostUnits) return {};
    sum = std::min(sum + Bytes{size->count * *count}, RegisterJob::kMostBrought);
  }
  return sum;
}

}  // namespace sharedgpu
