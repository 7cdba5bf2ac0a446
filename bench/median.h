// SPDX-License-Identifier: Apache-2.0
// The median of measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace sharedgpu {

// Returns the larger one of the two middle values if their number is even, and 0 if there are no values.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace sharedgpu
