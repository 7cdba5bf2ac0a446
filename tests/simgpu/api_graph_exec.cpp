// SPDX-License-Identifier: Apache-2.0
// Executable graphs: instantiated, updated, launched.
#include <algorithm>

#include "tests/simgpu/api.h"
#include "tests/simgpu/graph_node.h"
#include "tests/simgpu/launch.h"

using namespace sharedgpu::simgpu;

namespace {

constexpr auto kUpdateFailure = static_cast<CUresult>(910);  // CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE

std::vector<ExecNode> exec_nodes(const Graph& graph) {
  std::vector<ExecNode> nodes;
  for (const Node* node : run_order(graph)) {
    nodes.push_back({.original = node, .work = node->work});
    if (node->child) nodes.back().children = exec_nodes(*node->child);
  }
  return nodes;
}

std::shared_ptr<GraphExec> find_exec(CUgraphExec handle) {
  return driver().graph_execs.get(handle, CUDA_ERROR_INVALID_VALUE);
}

ExecNode* find_in(std::vector<ExecNode>& nodes, CUgraphNode handle) {
  for (ExecNode& node : nodes) {
    if (node_handle(node.original) == handle) return &node;
    if (ExecNode* child = find_in(node.children, handle)) return child;
  }
  return nullptr;
}

// Calls change(node) for a node of the executable graph. The change does not affect earlier launches.
template <class Change>
CUresult change_node(const char* name, CUgraphExec handle, CUgraphNode node, Change change) {
  return call(name, Needs::context, [&] {
    auto exec = find_exec(handle);
    std::lock_guard lock(order_lock());
    ExecNode* found = find_in(exec->nodes, node);
    require(found != nullptr, CUDA_ERROR_INVALID_VALUE);
    change(*found);
  });
}

CUresult set_work_of(const char* name, CUgraphExec handle, CUgraphNode node,
                     const std::function<NodeParameters()>& make) {
  return change_node(name, handle, node, [&](ExecNode& changed) {
    Work work = node_work(make());
    require(work.type == changed.work.type, CUDA_ERROR_INVALID_VALUE);
    changed.work = std::move(work);
  });
}

template <class Parameters>
CUresult set_kernel(CUgraphExec exec, CUgraphNode node, const Parameters* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_work_of("cuGraphExecKernelNodeSetParams", exec, node, [&] {
    return NodeParameters{kernel_parameters(
        p->func,
        {p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ, p->sharedMemBytes},
        p->kernelParams, p->extra)};
  });
}

// Replaces the work of each node by the work of the corresponding node of `graph`, also in child graphs.
// Throws if the number or the types of the nodes differ.
void take_works(std::vector<ExecNode>& nodes, const Graph& graph) {
  const std::vector<Node*> from = run_order(graph);
  require(from.size() == nodes.size(), kUpdateFailure);
  for (std::size_t i = 0; i < nodes.size(); ++i)
    require(from[i]->work.type == nodes[i].work.type, kUpdateFailure);
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    nodes[i].work = from[i]->work;
    if (from[i]->child) take_works(nodes[i].children, *from[i]->child);
  }
}

CUresult set_child(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return change_node("cuGraphExecChildGraphNodeSetParams", exec, node, [&](ExecNode& changed) {
    require(changed.work.type == CU_GRAPH_NODE_TYPE_GRAPH, CUDA_ERROR_INVALID_VALUE);
    take_works(changed.children, *driver().graphs.get(child, CUDA_ERROR_INVALID_VALUE));
  });
}

CUresult update_all(CUgraphExec handle, CUgraph graph) {
  return call("cuGraphExecUpdate", Needs::context, [&] {
    auto exec = find_exec(handle);
    auto from = driver().graphs.get(graph, CUDA_ERROR_INVALID_VALUE);
    std::lock_guard lock(order_lock());
    take_works(exec->nodes, *from);
  });
}

CUresult instantiate(CUgraphExec* out, CUgraph handle, cuuint64_t flags) {
  return call("cuGraphInstantiate", Needs::context, [&] {
    require(out != nullptr, CUDA_ERROR_INVALID_VALUE);
    auto graph = driver().graphs.get(handle, CUDA_ERROR_INVALID_VALUE);
    auto exec = std::make_shared<GraphExec>();
    std::lock_guard lock(order_lock());
    exec->nodes = exec_nodes(*graph);
    exec->flags = flags;
    *out = reinterpret_cast<CUgraphExec>(driver().graph_execs.add(exec));
  });
}

void add_works(const std::vector<ExecNode>& nodes, std::vector<Work>& works) {
  for (const ExecNode& node : nodes) {
    if (node.enabled) works.push_back(node.work);
    add_works(node.children, works);
  }
}

// Calls visit(event) for each event that a node waits for (`waits`), or for each event that a node records.
template <class Visit>
void visit_events(const std::vector<Work>& works, bool waits, Visit visit) {
  for (const Work& work : works) {
    const auto* its = work.parameters ? std::get_if<EventParameters>(&work.parameters->value) : nullptr;
    if (its != nullptr && its->waits == waits) visit(*driver().events.get(its->event));
  }
}

// Launches of one executable graph run one after the other.
CUresult launch(DefaultStream zero, CUgraphExec handle, CUstream stream_handle) {
  return call("cuGraphLaunch", Needs::context, [&] {
    auto exec = find_exec(handle);
    StreamPtr stream = find_stream(zero, stream_handle);
    std::vector<Work> works;
    Event earlier;
    {
      std::lock_guard lock(order_lock());
      add_works(exec->nodes, works);
      earlier.recorded = exec->last;
    }
    for (const Work& work : works)
      if (work.memory != 0) driver().graph_memory->back(work.memory);
    const bool captured = capturing(*stream);
    if (!captured) wait_event(stream, earlier);
    visit_events(works, true, [&](Event& event) { wait_event(stream, event); });
    TaskPtr task = submit(stream, graph_work(works));
    visit_events(works, false, [&](Event& event) { record(event, stream); });
    if (captured) return;
    std::lock_guard lock(order_lock());
    exec->last = task;
  });
}

CUresult upload(DefaultStream zero, CUgraphExec handle, CUstream stream) {
  return call("cuGraphUpload", Needs::context, [&] {
    find_exec(handle);
    find_stream(zero, stream);
  });
}

#if CUDA_VERSION >= 12000
CUresult instantiate_with_params(DefaultStream, CUgraphExec* out, CUgraph graph,
                                 CUDA_GRAPH_INSTANTIATE_PARAMS* parameters) {
  if (parameters == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = instantiate(out, graph, parameters->flags);
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
#undef cuGraphExecKernelNodeSetParams
#undef cuGraphExecUpdate

extern "C" {

CUresult CUDAAPI cuGraphInstantiate(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log,
                                    std::size_t size) {
  if (bad != nullptr) *bad = nullptr;
  if (log != nullptr && size > 0) *log = '\0';
  return instantiate(out, graph, 0);
}
CUresult CUDAAPI cuGraphInstantiate_v2(CUgraphExec* out, CUgraph graph, CUgraphNode* bad, char* log,
                                       std::size_t size) {
  return cuGraphInstantiate(out, graph, bad, log, size);
}
CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return instantiate(out, graph, flags);
}
#if CUDA_VERSION >= 12000
SIMGPU_BOTH(cuGraphInstantiateWithParams, _ptsz, instantiate_with_params,
            (CUgraphExec * e, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS* p), e, g, p)

CUresult CUDAAPI cuGraphExecGetFlags(CUgraphExec exec, cuuint64_t* flags) {
  return call("cuGraphExecGetFlags", Needs::context, [&] {
    require(flags != nullptr, CUDA_ERROR_INVALID_VALUE);
    *flags = find_exec(exec)->flags;
  });
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                                   const CUDA_KERNEL_NODE_PARAMS_v2* p) {
  return set_kernel(exec, node, p);
}
#endif
CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_KERNEL_NODE_PARAMS_v1* p) {
  return set_kernel(exec, node, p);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D* p,
                                                CUcontext) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_work_of("cuGraphExecMemcpyNodeSetParams", exec, node, [&] { return NodeParameters{*p}; });
}
CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS* p, CUcontext) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_work_of("cuGraphExecMemsetNodeSetParams", exec, node, [&] { return NodeParameters{*p}; });
}
CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return set_work_of("cuGraphExecHostNodeSetParams", exec, node, [&] { return NodeParameters{*p}; });
}
CUresult CUDAAPI cuGraphExecEventRecordNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_work_of("cuGraphExecEventRecordNodeSetEvent", exec, node, [&] {
    return NodeParameters{EventParameters{event, false}};
  });
}
CUresult CUDAAPI cuGraphExecEventWaitNodeSetEvent(CUgraphExec exec, CUgraphNode node, CUevent event) {
  return set_work_of("cuGraphExecEventWaitNodeSetEvent", exec, node, [&] {
    return NodeParameters{EventParameters{event, true}};
  });
}
CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraph child) {
  return set_child(exec, node, child);
}

#if CUDA_VERSION >= 12020
CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams* p) {
  if (p == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const CUgraphNodeParams& all = *p;
  switch (all.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return set_kernel(exec, node, &all.kernel);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return cuGraphExecMemcpyNodeSetParams(exec, node, &all.memcpy.copyParams, nullptr);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const auto& set = all.memset;
      const CUDA_MEMSET_NODE_PARAMS plain = {set.dst,         set.pitch, set.value,
                                             set.elementSize, set.width, set.height};
      return cuGraphExecMemsetNodeSetParams(exec, node, &plain, nullptr);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS plain = {all.host.fn, all.host.userData};
      return cuGraphExecHostNodeSetParams(exec, node, &plain);
    }
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return set_child(exec, node, all.graph.graph);
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return cuGraphExecEventWaitNodeSetEvent(exec, node, all.eventWait.event);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return cuGraphExecEventRecordNodeSetEvent(exec, node, all.eventRecord.event);
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}
#endif

CUresult CUDAAPI cuGraphNodeSetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int enabled) {
  return change_node("cuGraphNodeSetEnabled", exec, node, [&](ExecNode& changed) {
    require(changed.work.type <= CU_GRAPH_NODE_TYPE_MEMSET, CUDA_ERROR_INVALID_VALUE);
    changed.enabled = enabled != 0;
  });
}
CUresult CUDAAPI cuGraphNodeGetEnabled(CUgraphExec exec, CUgraphNode node, unsigned int* enabled) {
  return change_node("cuGraphNodeGetEnabled", exec, node, [&](const ExecNode& its) {
    require(enabled != nullptr, CUDA_ERROR_INVALID_VALUE);
    *enabled = its.enabled ? 1 : 0;
  });
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode* bad,
                                   CUgraphExecUpdateResult* result) {
  const CUresult done = update_all(exec, graph);
  if (bad != nullptr) *bad = nullptr;
  if (result != nullptr)
    *result =
        done == CUDA_SUCCESS ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
  return done;
}
#if CUDA_VERSION >= 12000
CUresult CUDAAPI cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo* info) {
  if (info == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *info = {};
  return cuGraphExecUpdate(exec, graph, nullptr, &info->result);
}
#endif

SIMGPU_BOTH(cuGraphLaunch, _ptsz, launch, (CUgraphExec e, CUstream s), e, s)
SIMGPU_BOTH(cuGraphUpload, _ptsz, upload, (CUgraphExec e, CUstream s), e, s)

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec exec) {
  return call("cuGraphExecDestroy", Needs::init, [&] { driver().graph_execs.remove(exec); });
}

}  // extern "C"
