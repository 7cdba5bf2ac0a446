// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_calls.h"

#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "interposer/driver/call.h"
#include "interposer/hooks/export.h"
#include "interposer/hooks/graph_launch.h"
#include "interposer/hooks/graph_records.h"
#include "interposer/process/process.h"

#if CUDA_VERSION < 12000
struct CUDA_KERNEL_NODE_PARAMS_v2;
extern "C" CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec, CUgraphNode,
                                                      const CUDA_KERNEL_NODE_PARAMS_v2*);
#endif

namespace sharedgpu::hooks {
namespace {

using Word = std::uintptr_t;

template <class T>
T read_as(Word address) {
  T value;
  std::memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}

// Flags of cuGraphInstantiateWithFlags.
constexpr cuuint64_t kDeviceLaunch = 4;
constexpr cuuint64_t kNodePriority = 8;

// Reads the nodes of `graph`, from which `executable`, or a child graph in `executable`, has been made.
GraphContents contents_of(Word executable, Word graph) {
  cuuint64_t flags = 0;
  const bool known = driver::call<CUresult(Word, cuuint64_t*)>(driver::Function::cuGraphExecGetFlags,
                                                               executable, &flags) == CUDA_SUCCESS;
  if ((flags & kDeviceLaunch) != 0) kernels_launch_graphs();
  GraphContents contents = read_graph(reinterpret_cast<CUgraph>(graph), (flags & kNodePriority) != 0);
  contents.ordered &= known;
  return contents;
}

void set_step(Word graph, Word node, Step step) {
  auto shared = std::make_shared<const Step>(std::move(step));
  graph_records().change(graph, node, [&](GraphNode& changed) { changed.step = std::move(shared); });
}

// `with_kernel` is true if `parameters` points to a CUDA_KERNEL_NODE_PARAMS_v2.
void set_kernel(Word graph, Word node, Word parameters, bool with_kernel) {
  const std::shared_ptr<const Step> before = graph_records().step(graph, node);
  if (before == nullptr) return;
  KernelNode kernel{};
  std::memcpy(&kernel, reinterpret_cast<const void*>(parameters),
              with_kernel ? sizeof kernel : offsetof(KernelNode, kernel));
  const auto* const its = std::get_if<KernelStep>(before.get());
  Step after = its != nullptr ? kernel_step(kernel, its->attributes) : UnknownStep{};
  // If the kernel could be launched only as a part of its graph, the update does not change this.
  if (its != nullptr && !its->arguments) std::get<KernelStep>(after).arguments.reset();
  set_step(graph, node, std::move(after));
}

void set_child(Word graph, Word node, Word child) {
  graph_records().change_child(graph, node, contents_of(graph, child));
}

bool may_be_oversized() {
  session::DeviceSession* const session = process::current_session();
  return session != nullptr && session->may_be_oversized();
}

// Returns true if a call has succeeded, and there are records.
bool counts(CUresult result) { return result == CUDA_SUCCESS && graph_records().in_use(); }

Word word(CUgraphExec graph) { return reinterpret_cast<Word>(graph); }
Word word(CUgraphNode node) { return reinterpret_cast<Word>(node); }

}  // namespace

void note_graph_call(GraphForm form, Word first, Word second, Word third) {
  GraphRecords& records = graph_records();
  if (form != GraphForm::made && !records.in_use()) return;
  switch (form) {
    case GraphForm::none:
      return;
    case GraphForm::made: {
      const Word graph = read_as<Word>(first);
      if (may_be_oversized()) records.instantiated(graph, contents_of(graph, second));
      return;
    }
    case GraphForm::updated:
      if (records.snapshot(first) != nullptr) records.updated(first, contents_of(first, second));
      return;
    case GraphForm::copy:
      return set_step(first, second, copy_step(read_as<CUDA_MEMCPY3D>(third)));
    case GraphForm::fill:
      return set_step(first, second, read_as<CUDA_MEMSET_NODE_PARAMS>(third));
    case GraphForm::child:
      return set_child(first, second, third);
    case GraphForm::lost:
      return records.lost(first);
  }
}

}  // namespace sharedgpu::hooks

using namespace sharedgpu::hooks;

SHAREDGPU_EXPORT CUresult cuGraphExecKernelNodeSetParams(CUgraphExec graph, CUgraphNode node,
                                                         const CUDA_KERNEL_NODE_PARAMS_v1* parameters) {
  const CUresult result = SHAREDGPU_REAL(cuGraphExecKernelNodeSetParams, graph, node, parameters);
  if (counts(result))
    set_kernel(word(graph), word(node), reinterpret_cast<std::uintptr_t>(parameters), false);
  return result;
}

SHAREDGPU_EXPORT CUresult cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph, CUgraphNode node,
                                                            const CUDA_KERNEL_NODE_PARAMS_v2* parameters) {
  const CUresult result = SHAREDGPU_REAL(cuGraphExecKernelNodeSetParams_v2, graph, node, parameters);
  if (counts(result)) set_kernel(word(graph), word(node), reinterpret_cast<std::uintptr_t>(parameters), true);
  return result;
}

SHAREDGPU_EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec graph, CUgraphNode node, unsigned int enabled) {
  const CUresult result = SHAREDGPU_REAL(cuGraphNodeSetEnabled, graph, node, enabled);
  if (counts(result)) graph_records().lost(word(graph));
  return result;
}

SHAREDGPU_EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) { return graph_records().destroy(graph); }
