// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/handle.h"

#include <algorithm>

namespace sharedgpu {

std::vector<Handle> cut_into_handles(const Range& range, Bytes size) {
  const std::uint64_t count = std::max<std::uint64_t>(range.size.count / size.count, 1);
  std::vector<Handle> handles(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t offset = i * size.count;
    handles[i].address = range.base + offset;
    handles[i].size = i + 1 == count ? range.size - Bytes{offset} : size;
  }
  return handles;
}

}  // namespace sharedgpu
