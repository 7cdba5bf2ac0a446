// SPDX-License-Identifier: Apache-2.0
// The memory of graphs: the driver takes it when a graph with allocation nodes first runs, and keeps it for
// later runs until it is trimmed. Its addresses are fixed, so it cannot be swapped: it counts as pinned.
//
// Safe from all threads.
#pragma once

#include <atomic>

namespace sharedgpu::hooks::graph_memory {

// Whether the program has ever made an allocation node: all others are spared the questions.
inline constinit std::atomic<bool> in_use{false};

// Counts what the driver keeps now. May wait for the arbiter.
void count();

}  // namespace sharedgpu::hooks::graph_memory
