// SPDX-License-Identifier: Apache-2.0
// The memory of graphs: the driver takes it when a graph with allocation nodes first runs, and keeps it for
// later runs until it is trimmed. Its addresses are fixed, so it cannot be swapped: it counts as pinned. How
// much a launch will take nobody says: it is counted afterwards, and asked for only where the driver found
// none.
//
// Safe from all threads.
#pragma once

#include <algorithm>
#include <atomic>

#include "interposer/memory/memory.h"

namespace sharedgpu::hooks::graph_memory {

// Of all allocation nodes that the program has ever made. While there is none, all are spared the questions.
extern std::atomic<std::uint64_t> asked_for;
inline bool in_use() { return asked_for.load(std::memory_order_relaxed) != 0; }
inline void note_node(Bytes size) {
  asked_for.fetch_add(std::min(size, kLargestAllocation).count, std::memory_order_relaxed);
}

// Counts what the driver keeps now. May wait for the arbiter.
void count();

}  // namespace sharedgpu::hooks::graph_memory
