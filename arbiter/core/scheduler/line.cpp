// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/line.h"

#include <algorithm>

namespace sharedgpu {

void seat_gangs(std::vector<InLine>& line, const Gangs& gangs) {
  const auto first = std::partition(line.begin(), line.end(),
                                    [](const InLine& its) { return !its.tenant->gang || its.ordered; });
  std::vector<const Tenant*> by_age;
  for (auto it = first; it != line.end(); ++it) by_age.push_back(it->tenant);
  std::sort(by_age.begin(), by_age.end(),
            [&](const Tenant* one, const Tenant* other) { return gangs.is_elder(*one, *other); });
  std::sort(first, line.end(), [](const InLine& one, const InLine& other) { return other < one; });
  std::transform(first, line.end(), by_age.begin(), first, [](InLine place, const Tenant* gang) {
    place.tenant = gang;
    return place;
  });
}

}  // namespace sharedgpu
