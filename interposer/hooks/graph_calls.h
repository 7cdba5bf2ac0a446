// SPDX-License-Identifier: Apache-2.0
// Enters the program's calls that make and change executable graphs into the records of these graphs. Needs
// no cuda.h, since submit.cpp also wraps functions that the installed cuda.h lacks. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

namespace sharedgpu::hooks {

// The effect of a driver function on an executable graph, derived from the function's name. The function
// makes the graph, updates the whole graph, updates one of its nodes, or changes the graph in a way that the
// records do not follow. The function's first argument is the graph, or points to the graph. The second
// argument is the CUgraph, or the node.
enum class GraphForm { none, made, updated, copy, fill, child, lost };
constexpr GraphForm graph_form(std::string_view name) {
  if (name.starts_with("cuGraphInstantiate")) return GraphForm::made;
  if (name.starts_with("cuGraphExecUpdate")) return GraphForm::updated;
  if (name == "cuGraphExecMemcpyNodeSetParams") return GraphForm::copy;
  if (name == "cuGraphExecMemsetNodeSetParams") return GraphForm::fill;
  if (name == "cuGraphExecChildGraphNodeSetParams") return GraphForm::child;
  return name == "cuGraphExecNodeSetParams" ? GraphForm::lost : GraphForm::none;
}

// Enters a call that has succeeded into the records. `first`, `second` and `third` are the first three
// arguments of the call.
void note_graph_call(GraphForm form, std::uintptr_t first, std::uintptr_t second, std::uintptr_t third);

}  // namespace sharedgpu::hooks
