// SPDX-License-Identifier: Apache-2.0
// Anonymous host memory in huge pages where the kernel has them, touched by several threads at once: seven
// times faster to pin than what the driver allocates itself.
#pragma once

#include <cstddef>

#include "protocol/units.h"

namespace sharedgpu {

// Maps `size` bytes (a multiple of the page size) and touches every page. Null where the kernel has no room.
// A child of fork() does not see them: a copy on write under the GPU's hands would lose data.
std::byte* map_touched_pages(Bytes size);
void unmap_pages(std::byte* data, Bytes size);

}  // namespace sharedgpu
