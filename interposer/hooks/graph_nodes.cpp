// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_nodes.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/oversize/node_order.h"

namespace sharedgpu::hooks {
namespace {

constexpr std::size_t kMostNodes = 65536;  // of one graph
constexpr unsigned kDeepest = 8;           // levels of graphs in graphs

// Functions that the cuda.h of CUDA 11.8 lacks.
using GetParams = CUresult(CUgraphNode node, KernelNode* parameters);
using GetEdges = CUresult(CUgraph graph, CUgraphNode* from, CUgraphNode* to, EdgeKind* kinds,
                          std::size_t* count);

// The attributes that a kernel's node and a kernel's launch have in common. They are numbers here, since
// older versions of cuda.h lack some names of CUlaunchAttributeID.
constexpr unsigned kPriority = 8;
constexpr unsigned kOfLaunches[] = {
    1,          // access policy window
    2,          // cooperative
    4,          // cluster dimensions
    5,          // cluster scheduling
    kPriority,  //
    9,          // map of memory synchronization domains
    10,         // memory synchronization domain
    11,         // preferred cluster dimensions
    14,         // preferred shared memory
    16,         // scheduling for NVLink
};
constexpr unsigned kLastAttribute = 31;  // the highest attribute that attributes_of() queries

// Returns nullopt if the node has an attribute that only nodes of graphs have, or an unknown one. An
// attribute whose value is zero is not set.
std::optional<std::vector<CUlaunchAttribute>> attributes_of(CUgraphNode node, bool priorities) {
  std::vector<CUlaunchAttribute> found;
  for (unsigned id = 1; id <= kLastAttribute; ++id) {
    if (id == kPriority && !priorities) continue;
    CUlaunchAttribute attribute{};
    attribute.id = static_cast<CUlaunchAttributeID>(id);
    if (SHAREDGPU_REAL(cuGraphKernelNodeGetAttribute, node, attribute.id, &attribute.value) != CUDA_SUCCESS)
      continue;
    const auto is_zero = [](char byte) { return byte == 0; };
    if (id != kPriority && std::ranges::all_of(attribute.value.pad, is_zero)) continue;
    if (std::ranges::find(kOfLaunches, id) == std::end(kOfLaunches)) return std::nullopt;
    found.push_back(attribute);
  }
  return found;
}

// Returns true for pageable host memory. A node of a graph accesses such memory when the node runs. A copy
// that belongs to no graph reads such memory during the call, or makes the program wait.
bool is_pageable(CUmemorytype type, const void* host, CUdeviceptr device) {
  if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_UNIFIED) return false;
  const auto address = type == CU_MEMORYTYPE_HOST ? reinterpret_cast<CUdeviceptr>(host) : device;
  unsigned kind = 0;
  return SHAREDGPU_REAL(cuPointerGetAttribute, &kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) !=
         CUDA_SUCCESS;
}

Step kernel_of(CUgraphNode node, bool priorities) {
  KernelNode kernel{};
  if (driver::call<GetParams>(driver::Function::cuGraphKernelNodeGetParams_v2, node, &kernel) != CUDA_SUCCESS)
    return UnknownStep{};
  auto attributes = attributes_of(node, priorities);
  const bool known = attributes.has_value();
  Step step = kernel_step(kernel, std::move(attributes).value_or(std::vector<CUlaunchAttribute>{}));
  if (!known) std::get<KernelStep>(step).arguments.reset();
  return step;
}

Step step_of(CUgraphNode node, NodeType type, bool priorities) {
  switch (type) {
    case NodeType::kernel:
      return kernel_of(node, priorities);
    case NodeType::copy: {
      CUDA_MEMCPY3D copy{};
      if (SHAREDGPU_REAL(cuGraphMemcpyNodeGetParams, node, &copy) != CUDA_SUCCESS) return UnknownStep{};
      return copy_step(copy);
    }
    case NodeType::fill: {
      CUDA_MEMSET_NODE_PARAMS fill{};
      if (SHAREDGPU_REAL(cuGraphMemsetNodeGetParams, node, &fill) != CUDA_SUCCESS) return UnknownStep{};
      return fill;
    }
    case NodeType::graph:
    case NodeType::empty:
      return EmptyStep{};
  }
  return UnknownStep{};
}

struct Reader {
  const bool priorities;
  bool ordered = true;
  std::size_t count = 0;  // of all nodes

  std::vector<GraphNode> read(CUgraph graph, unsigned depth) {
    std::size_t size = 0;
    if (depth > kDeepest || SHAREDGPU_REAL(cuGraphGetNodes, graph, nullptr, &size) != CUDA_SUCCESS ||
        count + size > kMostNodes)
      return give_up();
    if (size == 0) return {};
    count += size;
    std::vector<CUgraphNode> handles(size);
    if (SHAREDGPU_REAL(cuGraphGetNodes, graph, handles.data(), &size) != CUDA_SUCCESS) return give_up();
    std::vector<GraphNode> nodes;
    for (const std::size_t each : order(graph, handles)) nodes.push_back(read_node(handles[each], depth));
    return nodes;
  }

 private:
  std::vector<GraphNode> give_up() {
    ordered = false;
    return {};
  }

  GraphNode read_node(CUgraphNode handle, unsigned depth) {
    GraphNode node{.handle = reinterpret_cast<std::uintptr_t>(handle), .step = nullptr, .children = {}};
    CUgraphNodeType number{};
    std::optional<NodeType> type;
    if (SHAREDGPU_REAL(cuGraphNodeGetType, handle, &number) == CUDA_SUCCESS)
      type = single_type(static_cast<unsigned>(number));
    node.step = std::make_shared<const Step>(type ? step_of(handle, *type, priorities) : UnknownStep{});
    if (type != NodeType::graph) return node;
    CUgraph child = nullptr;
    node.children = SHAREDGPU_REAL(cuGraphChildGraphNodeGetGraph, handle, &child) == CUDA_SUCCESS
                        ? read(child, depth + 1)
                        : give_up();
    return node;
  }

  // The order in which the nodes can run, as indices into `handles`. If no order is found, the order of
  // `handles`.
  std::vector<std::size_t> order(CUgraph graph, const std::vector<CUgraphNode>& handles) {
    const auto edges = edges_of(graph, handles);
    auto found = edges ? order_of_nodes(handles.size(), *edges) : std::nullopt;
    if (found) return *std::move(found);
    ordered = false;
    return *order_of_nodes(handles.size(), {});
  }

  static std::optional<std::vector<NodeEdge>> edges_of(CUgraph graph,
                                                       const std::vector<CUgraphNode>& handles) {
    constexpr auto kGetEdges = driver::Function::cuGraphGetEdges_v2;
    std::size_t size = 0;
    if (driver::call<GetEdges>(kGetEdges, graph, nullptr, nullptr, nullptr, &size) != CUDA_SUCCESS)
      return std::nullopt;
    std::vector<NodeEdge> edges;
    if (size == 0) return edges;
    std::vector<CUgraphNode> from(size);
    std::vector<CUgraphNode> to(size);
    std::vector<EdgeKind> kinds(size);
    if (driver::call<GetEdges>(kGetEdges, graph, from.data(), to.data(), kinds.data(), &size) != CUDA_SUCCESS)
      return std::nullopt;
    std::map<CUgraphNode, std::size_t> numbers;
    for (std::size_t i = 0; i < handles.size(); ++i) numbers[handles[i]] = i;
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto first = numbers.find(from[i]);
      const auto second = numbers.find(to[i]);
      if (first == numbers.end() || second == numbers.end() || !is_met_by_order(kinds[i]))
        return std::nullopt;
      edges.push_back({first->second, second->second});
    }
    return edges;
  }
};

}  // namespace

bool is_single(const Step& step) {
  const auto* kernel = std::get_if<KernelStep>(&step);
  return kernel != nullptr ? kernel->arguments.has_value() : !std::holds_alternative<UnknownStep>(step);
}

Step copy_step(const CUDA_MEMCPY3D& copy) {
  if (is_pageable(copy.srcMemoryType, copy.srcHost, copy.srcDevice) ||
      is_pageable(copy.dstMemoryType, copy.dstHost, copy.dstDevice))
    return UnknownStep{};
  return copy;
}

Step kernel_step(const KernelNode& node, std::vector<CUlaunchAttribute> attributes) {
  KernelStep step;
  step.kernel = node.function != 0 ? node.function : node.kernel;
  std::ranges::copy(node.numbers, step.numbers);
  const auto parameters = reinterpret_cast<std::uintptr_t>(node.parameters);
  const auto extra = reinterpret_cast<std::uintptr_t>(node.extra);
  step.arguments = copy_arguments(step.kernel, parameters, extra);
  step.attributes = std::move(attributes);
  step.use = {.kernel = step.kernel, .arguments = kernel_arguments(step.kernel, parameters, extra)};
  return step;
}

GraphContents read_graph(CUgraph graph, bool priorities) {
  Reader reader{.priorities = priorities};
  GraphContents contents;
  contents.nodes = reader.read(graph, 0);
  contents.ordered = reader.ordered;
  return contents;
}

}  // namespace sharedgpu::hooks
