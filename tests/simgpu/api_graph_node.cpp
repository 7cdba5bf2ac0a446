// SPDX-License-Identifier: Apache-2.0
// Nodes of graphs: their types, parameters, attributes and dependencies.
#include <algorithm>
#include <cstring>

#include "tests/simgpu/api.h"
#include "tests/simgpu/graph_node.h"

using namespace sharedgpu::simgpu;

namespace {

// Calls get(parameters) with the node's parameters of this type.
template <class Parameters, class Get>
CUresult query_node(const char* name, CUgraphNode handle, const void* out, Get get) {
  return call(name, Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(order_lock());
    const auto parameters = find_node(handle)->work.parameters;
    const auto* its = parameters ? std::get_if<Parameters>(&parameters->value) : nullptr;
    require(its != nullptr, CUDA_ERROR_INVALID_VALUE);
    get(*parameters, *its);
  });
}

template <class Out>
CUresult get_kernel(CUgraphNode handle, Out* out) {
  return query_node<KernelParameters>("cuGraphKernelNodeGetParams", handle, out,
                                      [&](const NodeParameters& all, const KernelParameters& kernel) {
                                        *out = {};
                                        out->func = kernel.function;
                                        std::memcpy(&out->gridDimX, kernel.numbers.data(),
                                                    sizeof kernel.numbers);
                                        if (all.pointers.empty()) all.pointers = kernel.arguments.pointers();
                                        out->kernelParams = all.pointers.data();
                                      });
}

// Fills arrays of edges, as the driver's functions for edges do.
CUresult get_edges(CUgraph handle, CUgraphNode* from, CUgraphNode* to, std::uint8_t (*kinds)[8],
                   std::size_t* count) {
  return call("cuGraphGetEdges", Needs::context, [&] {
    require(count != nullptr && (from == nullptr) == (to == nullptr), CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(order_lock());
    std::size_t found = 0;
    for (const auto& node : graph->nodes)
      for (const Node* before : node->after) {
        if (from != nullptr && found < *count) {
          from[found] = node_handle(before);
          to[found] = node_handle(node.get());
          if (kinds != nullptr) std::memset(kinds[found], 0, sizeof kinds[found]);
        }
        ++found;
      }
    *count = from == nullptr ? found : std::min(*count, found);
  });
}

CUresult add_dependencies(CUgraph handle, const CUgraphNode* from, const CUgraphNode* to, std::size_t count) {
  return call("cuGraphAddDependencies", Needs::context, [&] {
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    require(count == 0 || (from != nullptr && to != nullptr), CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(order_lock());
    for (std::size_t i = 0; i < count; ++i) find_node(to[i])->after.push_back(find_node(from[i]).get());
  });
}

}  // namespace

#undef cuGraphGetEdges
#undef cuGraphAddDependencies
#undef cuGraphKernelNodeGetParams

extern "C" {

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType* type) {
  return call("cuGraphNodeGetType", Needs::context, [&] {
    require(type != nullptr, CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(order_lock());
    *type = find_node(handle)->work.type;
  });
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v1* out) {
  return get_kernel(node, out);
}
#if CUDA_VERSION >= 12000
CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, CUDA_KERNEL_NODE_PARAMS_v2* out) {
  return get_kernel(node, out);
}
#endif

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D* out) {
  return query_node<CUDA_MEMCPY3D>("cuGraphMemcpyNodeGetParams", node, out,
                                   [&](const auto&, const auto& its) { *out = its; });
}
CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS* out) {
  return query_node<CUDA_MEMSET_NODE_PARAMS>("cuGraphMemsetNodeGetParams", node, out,
                                             [&](const auto&, const auto& its) { *out = its; });
}
CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS* out) {
  return query_node<CUDA_HOST_NODE_PARAMS>("cuGraphHostNodeGetParams", node, out,
                                           [&](const auto&, const auto& its) { *out = its; });
}
CUresult CUDAAPI cuGraphEventRecordNodeGetEvent(CUgraphNode node, CUevent* out) {
  return query_node<EventParameters>("cuGraphEventRecordNodeGetEvent", node, out,
                                     [&](const auto&, const auto& its) { *out = its.event; });
}
CUresult CUDAAPI cuGraphEventWaitNodeGetEvent(CUgraphNode node, CUevent* out) {
  return query_node<EventParameters>("cuGraphEventWaitNodeGetEvent", node, out,
                                     [&](const auto&, const auto& its) { *out = its.event; });
}

// The child graph belongs to the node, so its handle is valid until the program destroys the parent graph.
CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph* out) {
  return call("cuGraphChildGraphNodeGetGraph", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    std::shared_ptr<Graph> child;
    {
      std::lock_guard lock(order_lock());
      child = find_node(handle)->child;
    }
    require(child != nullptr, CUDA_ERROR_INVALID_VALUE);
    *out = reinterpret_cast<CUgraph>(driver().graphs.add(child));
  });
}

CUresult CUDAAPI cuGraphKernelNodeGetAttribute(CUgraphNode node, CUlaunchAttributeID id,
                                               CUlaunchAttributeValue* out) {
  return query_node<KernelParameters>(
      "cuGraphKernelNodeGetAttribute", node, out, [&](const auto&, const KernelParameters& kernel) {
        constexpr unsigned kLast = 16;
        require(id >= 1 && id <= kLast, CUDA_ERROR_INVALID_VALUE);
        const auto found = kernel.attributes.find(id);
        *out = found == kernel.attributes.end() ? CUlaunchAttributeValue{} : found->second;
      });
}
CUresult CUDAAPI cuGraphKernelNodeSetAttribute(CUgraphNode node, CUlaunchAttributeID id,
                                               const CUlaunchAttributeValue* value) {
  return query_node<KernelParameters>(
      "cuGraphKernelNodeSetAttribute", node, value, [&](const NodeParameters& all, const KernelParameters&) {
        NodeParameters changed{all.value};
        std::get<KernelParameters>(changed.value).attributes[id] = *value;
        find_node(node)->work.parameters = std::make_shared<const NodeParameters>(std::move(changed));
      });
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph graph, CUgraphNode* from, CUgraphNode* to, std::size_t* count) {
  return get_edges(graph, from, to, nullptr, count);
}
CUresult CUDAAPI cuGraphAddDependencies(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                        std::size_t count) {
  return add_dependencies(graph, from, to, count);
}
#if CUDA_VERSION >= 12030
CUresult CUDAAPI cuGraphGetEdges_v2(CUgraph graph, CUgraphNode* from, CUgraphNode* to, CUgraphEdgeData* kinds,
                                    std::size_t* count) {
  return get_edges(graph, from, to, reinterpret_cast<std::uint8_t(*)[8]>(kinds), count);
}
CUresult CUDAAPI cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                           const CUgraphEdgeData*, std::size_t count) {
  return add_dependencies(graph, from, to, count);
}
#endif

}  // extern "C"
