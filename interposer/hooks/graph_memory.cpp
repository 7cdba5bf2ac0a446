// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_memory.h"

#include <cuda.h>

#include <array>
#include <mutex>

#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/export.h"
#include "interposer/session/session.h"

#if CUDA_VERSION < 12020
struct CUgraphNodeParams_st;
typedef CUgraphNodeParams_st CUgraphNodeParams;
extern "C" CUresult cuGraphAddNode(CUgraphNode*, CUgraph, const CUgraphNode*, std::size_t,
                                   CUgraphNodeParams*);
#endif
#if CUDA_VERSION < 12030
struct CUgraphEdgeData;
extern "C" CUresult cuGraphAddNode_v2(CUgraphNode*, CUgraph, const CUgraphNode*, const CUgraphEdgeData*,
                                      std::size_t, CUgraphNodeParams*);
#endif

using namespace sharedgpu;

namespace sharedgpu::hooks::graph_memory {
namespace {

constinit std::mutex mutex;
constinit std::array<Bytes, session::kMostDevices> counted_on{};  // with the mutex

void recount(CUdevice device, Memory* memory) {
  Bytes& counted = counted_on[static_cast<std::size_t>(device)];
  cuuint64_t kept = 0;
  if (SHAREDGPU_REAL(cuDeviceGetGraphMemAttribute, device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &kept) !=
      CUDA_SUCCESS)
    return;
  Bytes before;
  const Bytes after{kept};
  {
    const std::lock_guard lock(mutex);
    before = counted;
    counted = after;
  }
  if (after < before) memory->unpin(before - after);
  // It is taken already: where the arbiter has no room for it, it is asked again at the next occasion.
  if (after > before && memory->pin(after - before) != CUDA_SUCCESS) {
    const std::lock_guard lock(mutex);
    counted = minus(counted, after - before);
  }
}

}  // namespace

void count() {
  if (!in_use.load(std::memory_order_relaxed)) return;
  const auto memories = session::memories();
  for (std::size_t i = 0; i < memories.size(); ++i) recount(session::devices()[i], memories[i]);
}

}  // namespace sharedgpu::hooks::graph_memory

namespace {

namespace graph_memory = sharedgpu::hooks::graph_memory;

template <class Call>
CUresult launched(Call real) {
  const CUresult result = [&] {
    gate::Pass pass;
    return real();
  }();
  if (graph_memory::in_use.load(std::memory_order_relaxed)) [[unlikely]]
    graph_memory::count();
  return result;
}

// Any node, of which an allocation is one kind. The type is the first of the parameters.
template <class Call>
CUresult node_added(const CUgraphNodeParams* parameters, Call real) {
  if (parameters != nullptr &&
      *reinterpret_cast<const CUgraphNodeType*>(parameters) == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    graph_memory::in_use.store(true, std::memory_order_relaxed);
  gate::Pass pass;
  return real();
}

}  // namespace

SHAREDGPU_EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return launched([=] { return SHAREDGPU_REAL(cuGraphLaunch, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return launched([=] { return SHAREDGPU_REAL(cuGraphLaunch_ptsz, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
  return launched([=] { return SHAREDGPU_REAL(cuGraphUpload, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
  return launched([=] { return SHAREDGPU_REAL(cuGraphUpload_ptsz, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                                 std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  graph_memory::in_use.store(true, std::memory_order_relaxed);
  gate::Pass pass;
  return SHAREDGPU_REAL(cuGraphAddMemAllocNode, node, graph, after, count, parameters);
}

SHAREDGPU_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, CUgraphNodeParams* parameters) {
  return node_added(parameters,
                    [=] { return SHAREDGPU_REAL(cuGraphAddNode, node, graph, after, count, parameters); });
}

SHAREDGPU_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                            const CUgraphEdgeData* edges, std::size_t count,
                                            CUgraphNodeParams* parameters) {
  return node_added(parameters, [=] {
    return SHAREDGPU_REAL(cuGraphAddNode_v2, node, graph, after, edges, count, parameters);
  });
}

SHAREDGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const CUresult result = SHAREDGPU_REAL(cuDeviceGraphMemTrim, device);
  graph_memory::count();
  return result;
}
