// SPDX-License-Identifier: Apache-2.0
// The nodes of a CUDA graph as a sequence: which nodes and dependencies permit it to launch the nodes one
// after the other on one stream, and an order in which this is possible.
//
// Pure: no driver, no state. No call fails. Needs no cuda.h; the numbers are those of cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace sharedgpu {

// The types of nodes (CUgraphNodeType) that are launched singly.
enum class NodeType : std::uint8_t { kernel, copy, fill, host, graph, empty, wait_event, record_event };
// The type with this number; nullopt if a node of that type can run only as a part of its graph: nodes that
// allocate or free memory, conditional nodes, operations on memory or external semaphores, and unknown types.
constexpr std::optional<NodeType> single_type(unsigned number) {
  if (number > static_cast<unsigned>(NodeType::record_event)) return std::nullopt;
  return static_cast<NodeType>(number);
}

// How a node depends on another one: CUgraphEdgeData.
struct EdgeKind {
  std::uint8_t from_port = 0;
  std::uint8_t to_port = 0;
  std::uint8_t type = 0;
  std::uint8_t reserved[5] = {};
};
// Returns true if the dependency is met when the second node begins after the first one has ended. That is
// enough if the second node may begin at a sign of the first one (a programmatic dependency), since CUDA does
// not promise that it begins before the end. Dependencies of other kinds may be made for kernels that have to
// run at the same time.
constexpr bool is_met_by_order(const EdgeKind& kind) {
  constexpr std::uint8_t kFullOrAtSign = 1;  // the highest number of such a port, and of such a type
  return kind.from_port <= kFullOrAtSign && kind.to_port == 0 && kind.type <= kFullOrAtSign;
}

// A dependency of node `to` on node `from`. Nodes are numbered from zero.
struct NodeEdge {
  std::size_t from;
  std::size_t to;
};
// Returns the numbers of `count` nodes in an order in which each node comes after the nodes on which it
// depends, and otherwise as close to the numbers as possible, since programs add nodes in the order in which
// they use memory. Returns nullopt if there is no such order, or an edge has a number that no node has. Takes
// O((n + e) log n) for n nodes and e edges.
std::optional<std::vector<std::size_t>> order_of_nodes(std::size_t count, std::span<const NodeEdge> edges);

}  // namespace sharedgpu
