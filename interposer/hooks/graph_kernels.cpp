// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/graph_kernels.h"

#include <cuda.h>

#include <map>
#include <mutex>

#include "interposer/driver/call.h"
#include "interposer/hooks/kernel_arguments.h"
#include "interposer/process/process.h"

namespace sharedgpu::hooks {
namespace {

using session::KernelUse;

// Graphs that the program destroys are not removed, since their number is bounded here anyway.
constexpr std::size_t kMostGraphs = 1024;
constexpr std::size_t kMostKernels = 262144;  // of all graphs
constexpr std::size_t kMostNodes = 65536;     // of one graph
constexpr unsigned kDeepest = 8;              // levels of graphs in graphs

// A launch uses the kernels without the lock.
using Kernels = std::shared_ptr<const std::vector<KernelUse>>;

struct Graphs {
  std::mutex mutex;
  std::map<std::uintptr_t, Kernels> kernels;  // by CUgraphExec
  std::size_t count = 0;                      // of all kernels
};
Graphs& graphs() {
  static auto* made = new Graphs;
  return *made;
}

// CUDA_KERNEL_NODE_PARAMS_v2, which the cuda.h of CUDA 11.8 lacks.
struct KernelNode {
  std::uintptr_t function;
  unsigned int numbers[7];
  void** parameters;
  void** extra;
  std::uintptr_t kernel;
  std::uintptr_t context;
};
using GetParams = CUresult(CUgraphNode node, KernelNode* parameters);

void collect(CUgraph graph, unsigned depth, std::vector<KernelUse>& found) {
  std::size_t count = 0;
  if (SHAREDGPU_REAL(cuGraphGetNodes, graph, nullptr, &count) != CUDA_SUCCESS || count > kMostNodes) return;
  std::vector<CUgraphNode> nodes(count);
  if (SHAREDGPU_REAL(cuGraphGetNodes, graph, nodes.data(), &count) != CUDA_SUCCESS) return;
  for (CUgraphNode node : nodes) {
    CUgraphNodeType type{};
    if (SHAREDGPU_REAL(cuGraphNodeGetType, node, &type) != CUDA_SUCCESS) continue;
    CUgraph child = nullptr;
    KernelNode kernel{};
    if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < kDeepest &&
        SHAREDGPU_REAL(cuGraphChildGraphNodeGetGraph, node, &child) == CUDA_SUCCESS) {
      collect(child, depth + 1, found);
    } else if (type == CU_GRAPH_NODE_TYPE_KERNEL &&
               driver::call<GetParams>(driver::Function::cuGraphKernelNodeGetParams_v2, node, &kernel) ==
                   CUDA_SUCCESS) {
      const std::uintptr_t launched = kernel.function != 0 ? kernel.function : kernel.kernel;
      found.push_back(
          {.kernel = launched,
           .arguments = kernel_arguments(launched, reinterpret_cast<std::uintptr_t>(kernel.parameters),
                                         reinterpret_cast<std::uintptr_t>(kernel.extra))});
    }
  }
}

}  // namespace

void note_graph(std::uintptr_t executable, std::uintptr_t graph) {
  session::DeviceSession* const session = process::current_session();
  if (session == nullptr || !session->may_be_oversized()) return;
  std::vector<KernelUse> found;
  collect(reinterpret_cast<CUgraph>(graph), 0, found);
  Graphs& all = graphs();
  const std::lock_guard lock(all.mutex);
  if (all.kernels.size() >= kMostGraphs || all.count + found.size() > kMostKernels) {
    all.kernels.clear();
    all.count = 0;
  }
  Kernels& kernels = all.kernels[executable];
  if (kernels != nullptr) all.count -= kernels->size();
  all.count += found.size();
  kernels = std::make_shared<const std::vector<KernelUse>>(std::move(found));
}

Kernels kernels_of_graph(std::uintptr_t executable) {
  const std::lock_guard lock(graphs().mutex);
  const auto found = graphs().kernels.find(executable);
  return found == graphs().kernels.end() ? nullptr : found->second;
}

}  // namespace sharedgpu::hooks
