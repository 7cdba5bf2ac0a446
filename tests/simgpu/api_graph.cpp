// SPDX-License-Identifier: Apache-2.0
// Graphs that programs make node by node.
#include <algorithm>

#include "tests/simgpu/api.h"
#include "tests/simgpu/graph_node.h"
#include "tests/simgpu/launch.h"

using namespace sharedgpu::simgpu;

namespace {

CUresult add_node(const char* name, CUgraphNode* out, CUgraph handle, const CUgraphNode* after,
                  std::size_t count, const std::function<Work()>& make) {
  return call(name, Needs::context, [&] {
    require(out != nullptr && (count == 0 || after != nullptr), CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    auto node = std::make_shared<Node>();
    std::lock_guard lock(order_lock());
    for (std::size_t i = 0; i < count; ++i) {
      auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                [&](const auto& other) { return node_handle(other.get()) == after[i]; });
      require(found != graph->nodes.end(), CUDA_ERROR_INVALID_VALUE);
      node->after.push_back(found->get());
    }
    node->work = make();
    graph->nodes.push_back(node);
    *out = node_handle(node.get());
  });
}

// Supports both versions of the parameters. The fields that this function uses are the same in both.
template <class Parameters>
CUresult add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                         const Parameters* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddKernelNode", out, graph, after, count, [&] {
    return node_work({kernel_parameters(
        p->func,
        {p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes},
        p->kernelParams, p->extra)});
  });
}

// Removes the handles of child graphs. A child graph belongs to its node, and ends with the node.
void forget_children(const Graph& graph) {
  for (const auto& node : graph.nodes) {
    if (!node->child) continue;
    if (driver().graphs.find(node->child.get()) != nullptr) driver().graphs.remove(node->child.get());
    forget_children(*node->child);
  }
}

}  // namespace

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int flags) {
  return call("cuGraphCreate", Needs::context, [&] {
    require(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUgraph>(driver().graphs.add(std::make_shared<Graph>()));
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::init, [&] { forget_children(*driver().graphs.remove(graph)); });
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return call("cuGraphGetNodes", Needs::context, [&] {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    if (nodes != nullptr)
      for (std::size_t i = 0; i < *count; ++i)
        nodes[i] = i < graph->nodes.size() ? node_handle(graph->nodes[i].get()) : nullptr;
    if (nodes == nullptr || *count > graph->nodes.size()) *count = graph->nodes.size();
  });
}

#undef cuGraphAddKernelNode
CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  return add_kernel_node(out, graph, after, count, p);
}
#if CUDA_VERSION >= 12000
CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  return add_kernel_node(out, graph, after, count, p);
}
#endif

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddMemsetNode", out, graph, after, count, [&] { return node_work({*p}); });
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                      std::size_t count, const CUDA_MEMCPY3D* p, CUcontext) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddMemcpyNode", out, graph, after, count, [&] { return node_work({*p}); });
}

CUresult CUDAAPI cuGraphAddEventRecordNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                           std::size_t count, CUevent event) {
  return add_node("cuGraphAddEventRecordNode", out, graph, after, count, [&] {
    driver().events.get(event);
    return node_work({EventParameters{event, false}});
  });
}
CUresult CUDAAPI cuGraphAddEventWaitNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, CUevent event) {
  return add_node("cuGraphAddEventWaitNode", out, graph, after, count, [&] {
    driver().events.get(event);
    return node_work({EventParameters{event, true}});
  });
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                          std::size_t count, CUgraph child) {
  std::shared_ptr<Graph> copy;
  const CUresult result = add_node("cuGraphAddChildGraphNode", out, graph, after, count, [&] {
    copy = clone(*driver().graphs.get(child, CUDA_ERROR_INVALID_VALUE));
    return Work{.type = CU_GRAPH_NODE_TYPE_GRAPH, .run = nullptr};
  });
  if (result == CUDA_SUCCESS) reinterpret_cast<Node*>(*out)->child = copy;
  return result;
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                    std::size_t count, const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr || p->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddHostNode", out, graph, after, count, [&] { return node_work({*p}); });
}

CUresult CUDAAPI cuGraphAddEmptyNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                     std::size_t count) {
  return add_node("cuGraphAddEmptyNode", out, graph, after, count, [] { return Work{}; });
}

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                        std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* p) {
  if (p == nullptr || p->bytesize == 0 || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
    return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddMemAllocNode", out, graph, after, count, [&] {
    Gpu& gpu = driver().gpu(p->poolProps.location.id);
    p->dptr = driver().graph_memory->reserve({p->bytesize}, *gpu.store, gpu.number);
    return graph_allocation(p->dptr);
  });
}

CUresult CUDAAPI cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                       std::size_t count, CUdeviceptr memory) {
  return add_node("cuGraphAddMemFreeNode", out, graph, after, count, [&] {
    require(driver().graph_memory->knows(memory), CUDA_ERROR_INVALID_VALUE);
    return graph_free(memory);
  });
}

}  // extern "C"
