// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/node_order.h"

#include <functional>
#include <queue>

namespace sharedgpu {

std::optional<std::vector<std::size_t>> order_of_nodes(std::size_t count, std::span<const NodeEdge> edges) {
  std::vector<std::vector<std::size_t>> dependents(count);
  std::vector<std::size_t> missing(count);  // number of dependencies on nodes that are not yet in the order
  for (const NodeEdge& edge : edges) {
    if (edge.from >= count || edge.to >= count) return std::nullopt;
    dependents[edge.from].push_back(edge.to);
    ++missing[edge.to];
  }
  std::priority_queue<std::size_t, std::vector<std::size_t>, std::greater<>> ready;
  for (std::size_t node = 0; node < count; ++node)
    if (missing[node] == 0) ready.push(node);
  std::vector<std::size_t> order;
  while (!ready.empty()) {
    const std::size_t node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const std::size_t dependent : dependents[node])
      if (--missing[dependent] == 0) ready.push(dependent);
  }
  if (order.size() != count) return std::nullopt;
  return order;
}

}  // namespace sharedgpu
