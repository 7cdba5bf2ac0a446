// SPDX-License-Identifier: Apache-2.0
#include "tests/simgpu/graph_node.h"

#include <algorithm>
#include <functional>
#include <set>

#include "tests/simgpu/driver.h"
#include "tests/simgpu/launch.h"

namespace sharedgpu::simgpu {
namespace {

// Event nodes do nothing when they run: api_graph_exec.cpp waits for their events, and records them, around
// the launch of the whole graph.
Work work_for(const EventParameters& event) {
  return {event.waits ? CU_GRAPH_NODE_TYPE_WAIT_EVENT : CU_GRAPH_NODE_TYPE_EVENT_RECORD, nullptr};
}
Work work_for(const CUDA_HOST_NODE_PARAMS& host) {
  require(host.fn != nullptr, CUDA_ERROR_INVALID_VALUE);
  return host_work(host.fn, host.userData);
}
Work work_for(const CUDA_MEMSET_NODE_PARAMS& set) {
  require(set.elementSize == 1 || set.elementSize == 2 || set.elementSize == 4, CUDA_ERROR_INVALID_VALUE);
  return set_work({set.dst, set.value, set.elementSize, set.width, set.height, set.pitch});
}
Work work_for(const CUDA_MEMCPY3D& copy) { return copy_node_work(copy); }
Work work_for(const KernelParameters& kernel) {
  const auto& n = kernel.numbers;
  check_grid({n[0], n[1], n[2]}, {n[3], n[4], n[5]});
  return kernel_work(*find_launchable(kernel.function)->kernel, kernel.arguments);
}

void visit_nodes(const Graph& graph, const std::function<void(const std::shared_ptr<Node>&)>& visit) {
  for (const auto& node : graph.nodes) {
    visit(node);
    if (node->child) visit_nodes(*node->child, visit);
  }
}

void add_in_order(Node* node, std::set<const Node*>& seen, std::vector<Node*>& order) {
  if (!seen.insert(node).second) return;
  for (Node* before : node->after) add_in_order(before, seen, order);
  order.push_back(node);
}

}  // namespace

KernelParameters kernel_parameters(CUfunction function, const std::array<unsigned, 7>& numbers,
                                   void** parameters, void** extra) {
  return {function, numbers, collect(*find_launchable(function)->kernel, parameters, extra)};
}

CUDA_MEMCPY3D copy_parameters(const CopyPlan& plan) {
  CUDA_MEMCPY3D copy = {};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  copy.srcDevice = plan.source;
  copy.dstDevice = plan.target;
  copy.srcPitch = plan.source_pitch;
  copy.dstPitch = plan.target_pitch;
  copy.srcHeight = copy.dstHeight = copy.Height = plan.height;
  copy.WidthInBytes = plan.width;
  copy.Depth = 1;
  return copy;
}

CUDA_MEMSET_NODE_PARAMS set_parameters(const SetPlan& plan) {
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = plan.target;
  set.pitch = plan.pitch;
  set.value = plan.value;
  set.elementSize = static_cast<unsigned>(plan.element);
  set.width = plan.width;
  set.height = plan.height;
  return set;
}

Work node_work(NodeParameters parameters) {
  Work work = std::visit([](const auto& each) { return work_for(each); }, parameters.value);
  work.parameters = std::make_shared<const NodeParameters>(std::move(parameters));
  return work;
}

std::shared_ptr<Node> find_node(CUgraphNode handle) {
  std::shared_ptr<Node> found;
  driver().graphs.for_each([&](const Graph& graph) {
    visit_nodes(graph, [&](const std::shared_ptr<Node>& node) {
      if (node_handle(node.get()) == handle) found = node;
    });
  });
  require(found != nullptr, CUDA_ERROR_INVALID_VALUE);
  return found;
}

std::vector<Node*> run_order(const Graph& graph) {
  std::vector<Node*> order;
  std::set<const Node*> seen;
  for (const auto& node : graph.nodes) add_in_order(node.get(), seen, order);
  return order;
}

std::shared_ptr<Graph> clone(const Graph& graph) {
  auto copy = std::make_shared<Graph>();
  std::map<const Node*, Node*> copies;
  for (const auto& node : graph.nodes) {
    auto made = std::make_shared<Node>(*node);
    if (node->child) made->child = clone(*node->child);
    copies[node.get()] = made.get();
    copy->nodes.push_back(std::move(made));
  }
  for (const auto& node : copy->nodes)
    for (Node*& before : node->after) before = copies.at(before);
  return copy;
}

}  // namespace sharedgpu::simgpu
