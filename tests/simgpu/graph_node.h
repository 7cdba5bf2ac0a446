// SPDX-License-Identifier: Apache-2.0
// The parameters of graph nodes, as programs set and query them.
#pragma once

#include <cuda.h>

#include <array>
#include <map>
#include <variant>

#include "tests/simgpu/kernels.h"
#include "tests/simgpu/work.h"

namespace sharedgpu::simgpu {

struct KernelParameters {
  CUfunction function = nullptr;  // or a CUkernel
  std::array<unsigned, 7> numbers{};
  Arguments arguments;
  std::map<unsigned, CUlaunchAttributeValue> attributes = {};  // the attributes that the program has set
};
struct EventParameters {
  CUevent event = nullptr;
  bool waits = false;
};
struct NodeParameters {
  std::variant<KernelParameters, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
               EventParameters>
      value;
  // Pointers to the arguments of a kernel, made at the first query.
  mutable std::vector<void*> pointers = {};
};

// The parameters of a launch. Throws CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_INVALID_HANDLE.
KernelParameters kernel_parameters(CUfunction function, const std::array<unsigned, 7>& numbers,
                                   void** parameters, void** extra);
CUDA_MEMCPY3D copy_parameters(const CopyPlan& plan);
CUDA_MEMSET_NODE_PARAMS set_parameters(const SetPlan& plan);

// The work of a node with these parameters. Throws CUDA_ERROR_INVALID_VALUE.
Work node_work(NodeParameters parameters);
Work copy_node_work(const CUDA_MEMCPY3D& copy);

inline CUgraphNode node_handle(const Node* node) {
  return reinterpret_cast<CUgraphNode>(const_cast<Node*>(node));
}
// The node with this handle, in any graph. Throws CUDA_ERROR_INVALID_VALUE if there is none. Call this with
// the order lock held.
std::shared_ptr<Node> find_node(CUgraphNode handle);
// An order in which the nodes can run.
std::vector<Node*> run_order(const Graph& graph);
std::shared_ptr<Graph> clone(const Graph& graph);

}  // namespace sharedgpu::simgpu
