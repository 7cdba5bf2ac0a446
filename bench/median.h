// SPDX-License-Identifier: Apache-2.0
// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sharedgpu {

// Returns the middle value: for an even number of values, the larger one of the two middle values; for no
// values, 0.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sharedgpu
