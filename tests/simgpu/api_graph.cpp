// SPDX-License-Identifier: Apache-2.0
// Graphs: made by capture or node by node, instantiated, launched.
#include <algorithm>

#include "tests/simgpu/api.h"
#include "tests/simgpu/launch.h"
#include "tests/simgpu/work.h"

using namespace sharedgpu::simgpu;

namespace {

CUgraphNode handle_of(const Node* node) { return reinterpret_cast<CUgraphNode>(const_cast<Node*>(node)); }

CUresult add_node(const char* name, CUgraphNode* out, CUgraph handle, const CUgraphNode* after,
                  std::size_t count, const std::function<Work()>& make) {
  return call(name, Needs::context, [&] {
    require(out != nullptr && (count == 0 || after != nullptr), CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    auto node = std::make_shared<Node>();
    std::lock_guard lock(order_lock());
    for (std::size_t i = 0; i < count; ++i) {
      auto found = std::find_if(graph->nodes.begin(), graph->nodes.end(),
                                [&](const auto& other) { return handle_of(other.get()) == after[i]; });
      require(found != graph->nodes.end(), CUDA_ERROR_INVALID_VALUE);
      node->after.push_back(found->get());
    }
    node->work = make();
    graph->nodes.push_back(node);
    *out = handle_of(node.get());
  });
}

// Supports both versions of the parameters, in which the used fields are the same.
template <class Parameters>
CUresult add_kernel_node(CUgraphNode* out, CUgraph graph, const CUgraphNode* after, std::size_t count,
                         const Parameters* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddKernelNode", out, graph, after, count, [&] {
    auto function = find_launchable(p->func);
    check_grid({p->gridDimX, p->gridDimY, p->gridDimZ}, {p->blockDimX, p->blockDimY, p->blockDimZ});
    return kernel_work(*function->kernel, collect(*function->kernel, p->kernelParams, p->extra));
  });
}

CUresult instantiate(CUgraphExec* out, CUgraph handle) {
  return call("cuGraphInstantiate", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    auto exec = std::make_shared<GraphExec>();
    for (const auto& node : graph->nodes) exec->works.push_back(node->work);
    *out = reinterpret_cast<CUgraphExec>(driver().graph_execs.add(exec));
  });
}

CUresult launch(DefaultStream zero, CUgraphExec handle, CUstream stream_handle) {
  return call("cuGraphLaunch", Needs::context, [&] {
    auto exec = driver().graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE);
    for (const Work& work : exec->works)
      if (work.memory != 0) driver().graph_memory->back(work.memory);
    submit(find_stream(zero, stream_handle), graph_work(exec));
  });
}

CUresult upload(DefaultStream zero, CUgraphExec handle, CUstream stream) {
  return call("cuGraphUpload", Needs::context, [&] {
    driver().graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE);
    find_stream(zero, stream);
  });
}

#if CUDA_VERSION >= 12000
CUresult instantiate_with_params(DefaultStream, CUgraphExec* out, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(out, graph);
  parameters->hErrNode_out = nullptr;
  parameters->result_out =
      result == CUDA_SUCCESS ? CUDA_GRAPH_INSTANTIATE_SUCCESS : CUDA_GRAPH_INSTANTIATE_ERROR;
  return result;
}
#endif

}  // namespace

#undef cuGraphLaunch
#undef cuGraphUpload
#undef cuGraphInstantiate
#undef cuGraphInstantiateWithParams

extern "C" {

CUresult CUDAAPI cuGraphCreate(CUgraph* out, unsigned int flags) {
  return call("cuGraphCreate", Needs::context, [&] {
    require(out != nullptr && flags == 0, CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUgraph>(driver().graphs.add(std::make_shared<Graph>()));
  });
}

CUresult CUDAAPI cuGraphDestroy(CUgraph graph) {
  return call("cuGraphDestroy", Needs::init, [&] { driver().graphs.remove(graph); });
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode* nodes, std::size_t* count) {
  return call("cuGraphGetNodes", Needs::context, [&] {
    require(count != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    if (nodes != nullptr)
      for (std::size_t i = 0; i < *count; ++i)
        nodes[i] = i < graph->nodes.size() ? handle_of(graph->nodes[i].get()) : nullptr;
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
  return add_node("cuGraphAddMemsetNode", out, graph, after, count, [&] {
    return set_work({p->dst, p->value, p->elementSize, p->width, p->height, p->pitch});
  });
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* after,
                                    std::size_t count, const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr || p->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return add_node("cuGraphAddHostNode", out, graph, after, count,
                  [&] { return host_work(p->fn, p->userData); });
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

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log,
                                    std::size_t size) {
  if (bad != nullptr) *bad = nullptr;
  if (log != nullptr && size > 0) *log = '\0';
  return instantiate(out, graph);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log,
                                       std::size_t size) {
  return cuGraphInstantiate(out, graph, bad, log, size);
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
  return instantiate(out, graph);
}
#if CUDA_VERSION >= 12000
SIMGPU_BOTH(cuGraphInstantiateWithParams, _ptsz, instantiate_with_params,
            (CUgraphExec * e, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS* p), e, g, p)
#endif

SIMGPU_BOTH(cuGraphLaunch, _ptsz, launch, (CUgraphExec e, CUstream s), e, s)
SIMGPU_BOTH(cuGraphUpload, _ptsz, upload, (CUgraphExec e, CUstream s), e, s)

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", Needs::init, [&] { driver().graph_execs.remove(exec); });
}

}  // extern "C"
