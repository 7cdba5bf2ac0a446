// SPDX-License-Identifier: Apache-2.0
// The nodes of a graph, with the parameters for launching them without the graph, where this is possible. All
// parameters are copies, so the program may change or destroy the graph afterwards. Not thread-safe.
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
struct EmptyStep {};
// A node that can be launched only as a part of its graph.
struct UnknownStep {};
using Step = std::variant<UnknownStep, EmptyStep, KernelStep, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS>;

// Returns true if the step can be launched without its graph.
bool is_single(const Step& step);

struct GraphNode {
  std::uintptr_t handle = 0;         // CUgraphNode
  std::shared_ptr<const Step> step;  // never null; an EmptyStep for a child graph
  std::vector<GraphNode> children;   // the nodes of a child graph
};

struct GraphContents {
  std::vector<GraphNode> nodes;  // in an order in which they can run
  // True if launching the nodes one after the other in this order meets all dependencies. If false, the order
  // has no meaning, and nodes may be missing.
  bool ordered = true;
};

// Reads all nodes of the graph, and of its child graphs. `priorities`: kernels have the priorities of their
// nodes, not of the stream.
GraphContents read_graph(CUgraph graph, bool priorities);

Step copy_step(const CUDA_MEMCPY3D& copy);
// A step that launches the kernel of `node` with these attributes.
Step kernel_step(const KernelNode& node, std::vector<CUlaunchAttribute> attributes);

}  // namespace sharedgpu::hooks
