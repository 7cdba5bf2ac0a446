// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_memory.h"

#include <cuda.h>

#include <array>
#include <mutex>

#include "interposer/backlog/submission.h"
#include "interposer/driver/call.h"
#include "interposer/gate/gate.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/graph_launch.h"
#include "interposer/hooks/kept.h"
#include "interposer/hooks/native.h"
#include "interposer/oversize/active.h"
#include "interposer/process/process.h"

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

constinit std::atomic<std::uint64_t> asked_for{0};

namespace {

struct Graphs {
  std::mutex mutex;
  std::array<Kept, DeviceTable::kMost> kept{};  // counts by device; guarded by the mutex
};
constinit Graphs graphs;

void recount(CUdevice device, Pinning* memory) {
  Kept& kept = graphs.kept[static_cast<std::size_t>(device)];
  hooks::recount(graphs.mutex, kept, *memory, true, [&] {
    cuuint64_t now = kept.counted.count;  // the old value, if the driver does not report a new one
    SHAREDGPU_REAL(cuDeviceGetGraphMemAttribute, device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now);
    return KeptNow{{now}, {now}};
  });
}

constexpr Bytes kLeastRoom = mebibytes(2);

// Requests memory from the arbiter, and repeats the call. The amount that a launch lacks is unknown, so the
// function first requests the size of all nodes together. If nodes share memory, this size may be more than
// can ever be granted, so each further request is for half as much.
template <class Call>
CUresult with_room(Pinning& memory, CUdevice device, Call call) {
  Kept& kept = graphs.kept[static_cast<std::size_t>(device)];
  CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
  Bytes room;
  Patience patience;
  for (Bytes step{asked_for.load(std::memory_order_relaxed)};
       step >= kLeastRoom && result == CUDA_ERROR_OUT_OF_MEMORY; step = {step.count / 2}) {
    {
      const std::lock_guard lock(graphs.mutex);
      kept.asked += step;
    }
    room += step;
    if (memory.pin(step) != CUDA_SUCCESS) {
      const std::lock_guard lock(graphs.mutex);
      kept.asked -= step;
      room -= step;
      continue;
    }
    do {
      result = call();
    } while (patience.worth_another_try(result));
  }
  const std::lock_guard lock(graphs.mutex);
  kept.asked -= room;
  kept.counted += room;  // if the call has not used all of the granted memory, the next count() returns the
                         // rest to the arbiter
  return result;
}

// `call` launches or uploads a graph. `own` is true if stream 0 means the per-thread default stream.
template <class Call>
CUresult launched(CUstream stream, bool own, Call call) {
  const auto gated = [&] {
    backlog::Submission submission(reinterpret_cast<backlog::StreamWord>(stream), own);
    return call();
  };
  CUresult result = gated();
  if (!in_use()) [[likely]]
    return result;
  CUdevice device = 0;
  Pinning* memory = nullptr;
  if (result == CUDA_ERROR_OUT_OF_MEMORY && SHAREDGPU_REAL(cuCtxGetDevice, &device) == CUDA_SUCCESS)
    memory = process::memory_of(device);
  if (memory != nullptr) result = with_room(*memory, device, gated);
  count();
  return result;
}

template <class Call>
CUresult launch(CUgraphExec graph, CUstream stream, bool own, Call call) {
  const auto whole = [=] { return launched(stream, own, call); };
  if (oversize::is_active()) [[unlikely]]
    return hooks::launch_graph(graph, stream, own, whole);
  return whole();
}

// Adds the size of a new node if it is an allocation node. In the parameters, the first word is the node
// type. Three reserved words follow, and then the parameters of this type.
template <class Call>
CUresult node_added(const CUgraphNodeParams* parameters, Call real) {
  const auto* words = reinterpret_cast<const int*>(parameters);
  if (words != nullptr && words[0] == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
    note_node({reinterpret_cast<const CUDA_MEM_ALLOC_NODE_PARAMS*>(words + 4)->bytesize});
  gate::Pass pass;
  return real();
}

}  // namespace

void count() {
  if (!in_use()) return;
  const auto memories = process::memories();
  for (std::size_t i = 0; i < memories.size(); ++i) recount(process::devices()[i], memories[i]);
}

}  // namespace sharedgpu::hooks::graph_memory

namespace graph_memory = sharedgpu::hooks::graph_memory;

SHAREDGPU_EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream stream) {
  return graph_memory::launch(graph, stream, false,
                              [=] { return SHAREDGPU_REAL(cuGraphLaunch, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphLaunch_ptsz(CUgraphExec graph, CUstream stream) {
  return graph_memory::launch(graph, stream, true,
                              [=] { return SHAREDGPU_REAL(cuGraphLaunch_ptsz, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphUpload(CUgraphExec graph, CUstream stream) {
  return graph_memory::launched(stream, false, [=] { return SHAREDGPU_REAL(cuGraphUpload, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphUpload_ptsz(CUgraphExec graph, CUstream stream) {
  return graph_memory::launched(stream, true,
                                [=] { return SHAREDGPU_REAL(cuGraphUpload_ptsz, graph, stream); });
}

SHAREDGPU_EXPORT CUresult cuGraphAddMemAllocNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                                 std::size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* parameters) {
  if (parameters != nullptr) graph_memory::note_node({parameters->bytesize});
  gate::Pass pass;
  return SHAREDGPU_REAL(cuGraphAddMemAllocNode, node, graph, after, count, parameters);
}

SHAREDGPU_EXPORT CUresult cuGraphAddNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                         std::size_t count, CUgraphNodeParams* parameters) {
  return graph_memory::node_added(
      parameters, [=] { return SHAREDGPU_REAL(cuGraphAddNode, node, graph, after, count, parameters); });
}

SHAREDGPU_EXPORT CUresult cuGraphAddNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                            const CUgraphEdgeData* edges, std::size_t count,
                                            CUgraphNodeParams* parameters) {
  return graph_memory::node_added(parameters, [=] {
    return SHAREDGPU_REAL(cuGraphAddNode_v2, node, graph, after, edges, count, parameters);
  });
}

SHAREDGPU_EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device) {
  const CUresult result = SHAREDGPU_REAL(cuDeviceGraphMemTrim, device);
  graph_memory::count();
  return result;
}
