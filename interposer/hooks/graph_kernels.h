// SPDX-License-Identifier: Apache-2.0
// The kernels of the program's executable graphs, with their arguments as of the instantiation or the last
// update of the whole graph. Needs no cuda.h. Thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace sharedgpu::session {
struct KernelUse;
}

namespace sharedgpu::hooks {

// How a driver function, as its name shows, gets the executable graph that it makes or updates: its first
// argument is the graph or points to it; the second one is the CUgraph.
enum class GraphForm { none, made, updated };
constexpr GraphForm graph_form(std::string_view name) {
  if (name.starts_with("cuGraphInstantiate")) return GraphForm::made;
  return name.starts_with("cuGraphExecUpdate") ? GraphForm::updated : GraphForm::none;
}

// Records the kernels of `graph` (CUgraph) for `executable` (CUgraphExec), if a session of this process may
// be oversized.
void note_graph(std::uintptr_t executable, std::uintptr_t graph);

// The recorded kernels; null if there are none.
std::shared_ptr<const std::vector<session::KernelUse>> kernels_of_graph(std::uintptr_t executable);

}  // namespace sharedgpu::hooks
