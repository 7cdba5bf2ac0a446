// SPDX-License-Identifier: Apache-2.0
// The nodes of a CUDA graph as a sequence of launches on one stream. This file tells which types of nodes and
// dependencies permit such a sequence, and finds an order of the nodes.
//
// Pure: no driver, no state. No call fails. Does not include cuda.h, but uses the numbers of cuda.h's
// enumerations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sharedgpu {

// The types of nodes (CUgraphNodeType) that the interposer can launch one by one, outside their graph. Host
// functions and waits for events are not among them, since they may wait for the program's next call.
// cuGraphLaunch returns before the graph runs. Launches of single nodes, however, block when the stream's
// queue is full, so the program might never make its next call.
enum class NodeType : unsigned { kernel = 0, copy = 1, fill = 2, graph = 4, empty = 5 };
// The type with this number; nullopt if a node of that type runs only as a part of its graph.
constexpr std::optional<NodeType> single_type(unsigned number) {
  switch (const auto type = static_cast<NodeType>(number)) {
    case NodeType::kernel:
    case NodeType::copy:
    case NodeType::fill:
    case NodeType::graph:
    case NodeType::empty:
      return type;
  }
  return std::nullopt;
}

// The kind of a dependency between two nodes, with the layout of CUgraphEdgeData.
struct EdgeKind {
  std::uint8_t from_port = 0;
  std::uint8_t to_port = 0;
  std::uint8_t type = 0;
  std::uint8_t reserved[5] = {};
};
// Returns true if the dependency is met when the second node is launched after the end of the first node.
// This is true of a programmatic dependency, too: the second node may begin at a signal of the first node,
// but CUDA does not promise that it begins before the first node ends. Other kinds of dependencies may
// connect kernels that have to run at the same time.
constexpr bool is_met_by_order(const EdgeKind& kind) {
  constexpr std::uint8_t kFullOrAtSign = 1;  // the highest port number, and the highest type number, for
                                             // which the function returns true
  return kind.from_port <= kFullOrAtSign && kind.to_port == 0 && kind.type <= kFullOrAtSign;
}

// A dependency of node `to` on node `from`. Nodes are numbered from zero.
struct NodeEdge {
  std::size_t from;
  std::size_t to;
};
// Returns the numbers of `count` nodes in an order in which each node comes after the nodes on which it
// depends. Apart from that, nodes are sorted by number as far as possible, since programs add nodes in the
// order in which they use memory. Returns nullopt if there is no such order, or if a dependency has the
// number of a node that does not exist. Takes O((n + e) log n) for n nodes and e edges.
std::optional<std::vector<std::size_t>> order_of_nodes(std::size_t count, std::span<const NodeEdge> edges);

}  // namespace sharedgpu
