// SPDX-License-Identifier: Apache-2.0
// The nodes of a graph, as far as they can be launched without the graph. All parameters are copies, so the
// program may change or destroy the graph meanwhile. Not thread-safe.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "interposer/hooks/kernel_arguments.h"
#include "interposer/session/residence.h"

namespace sharedgpu::hooks {

// CUDA_KERNEL_NODE_PARAMS_v2, which the cuda.h of CUDA 11.8 lacks. The first version ends with `extra`.
struct KernelNode {
  std::uintptr_t function;
  unsigned int numbers[7];  // dimensions of the grid and of the blocks, bytes of shared memory
  void** parameters;
  void** extra;
  std::uintptr_t kernel;
  std::uintptr_t context;
};

struct KernelStep {
  std::uintptr_t kernel = 0;  // CUfunction or CUkernel
  unsigned int numbers[7] = {};
  // nullopt: the kernel can be launched only as a part of its graph.
  std::optional<ArgumentCopy> arguments;
  std::vector<CUlaunchAttribute> attributes;
  session::KernelUse use;
};
struct EventStep {
  CUevent event = nullptr;
  bool waits = false;  // otherwise the event is recorded
};
struct EmptyStep {};
// A node that can run only as a part of its graph.
struct UnknownStep {};
using Step = std::variant<UnknownStep, EmptyStep, KernelStep, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
                          CUDA_HOST_NODE_PARAMS, EventStep>;

// Returns true if the step can be launched without its graph.
bool is_single(const Step& step);

struct GraphNode {
  std::uintptr_t handle = 0;  // CUgraphNode
  bool enabled = true;
  std::shared_ptr<const Step> step;  // never null; of a child graph an empty step
  std::vector<GraphNode> children;   // the nodes of a child graph
};

struct GraphContents {
  std::vector<GraphNode> nodes;  // in an order in which they can run
  // The dependencies permit it to launch the nodes one after the other. Otherwise the order has no meaning.
  bool ordered = true;
};

// Reads all nodes of the graph, and of its child graphs. `priorities`: kernels have the priorities of their
// nodes, not of the stream.
GraphContents read_graph(CUgraph graph, bool priorities);

Step copy_step(const CUDA_MEMCPY3D& copy);
// A kernel with the attributes of `attributes`.
Step kernel_step(const KernelNode& node, std::vector<CUlaunchAttribute> attributes);

}  // namespace sharedgpu::hooks
