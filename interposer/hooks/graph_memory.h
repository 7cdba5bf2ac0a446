// SPDX-License-Identifier: Apache-2.0
// The memory of graphs. The driver allocates this memory when a graph with allocation nodes first runs, and
// keeps it for later runs until the memory is trimmed. The addresses of this memory are fixed, so it cannot
// be swapped, and counts as pinned. The amount that a launch will allocate is not known in advance, so the
// amount is counted after the launch. The interposer requests memory before a launch only if the driver has
// already refused this launch for lack of memory.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks::graph_memory {

// The total size of all allocation nodes that the program has ever made. While this size is zero, no launch
// has to query the driver.
extern std::atomic<std::uint64_t> asked_for;
inline bool in_use() { return asked_for.load(std::memory_order_relaxed) != 0; }
inline void note_node(Bytes size) {
  asked_for.fetch_add(std::min(size, kLargestAllocation).count, std::memory_order_relaxed);
}

// Counts the memory that the driver keeps for graphs now. May wait for the arbiter.
void count();

}  // namespace sharedgpu::hooks::graph_memory
