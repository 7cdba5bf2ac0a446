// SPDX-License-Identifier: Apache-2.0
// Graphs: queries of nodes, and updates of executable graphs.
#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {
namespace {

struct AddNodes {
  explicit AddNodes(const Gpu& its_gpu) : gpu(its_gpu) { REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS); }
  ~AddNodes() {
    if (exec != nullptr) CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  }
  AddNodes(const AddNodes&) = delete;
  AddNodes& operator=(const AddNodes&) = delete;

  // Calls use() with the parameters of a kernel that adds `value` to one word.
  template <class Use>
  auto with_kernel(CUdeviceptr memory, std::uint32_t value, Use use) const {
    std::uint64_t count = 1;
    void* arguments[] = {&memory, &count, &value};
    CUDA_KERNEL_NODE_PARAMS kernel = {};
    kernel.func = gpu.kernel("add_value");
    kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
    kernel.blockDimX = 32;
    kernel.blockDimY = kernel.blockDimZ = 1;
    kernel.kernelParams = arguments;
    return use(kernel);
  }
  CUgraphNode add(CUdeviceptr memory, std::uint32_t value) const {
    return with_kernel(memory, value, [&](const CUDA_KERNEL_NODE_PARAMS& kernel) {
      CUgraphNode node = nullptr;
      REQUIRE(cuGraphAddKernelNode(&node, graph, nullptr, 0, &kernel) == CUDA_SUCCESS);
      return node;
    });
  }
  CUgraphNode set(CUdeviceptr memory, std::uint32_t value) const {
    CUDA_MEMSET_NODE_PARAMS set = {};
    set.dst = memory;
    set.elementSize = 4;
    set.value = value;
    set.width = set.height = 1;
    CUgraphNode node = nullptr;
    REQUIRE(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &set, gpu.context) == CUDA_SUCCESS);
    return node;
  }
  void instantiate() { REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS); }
  // Returns the word after one launch.
  std::uint32_t launched(CUdeviceptr memory) const {
    REQUIRE(cuMemsetD32(memory, 0, 1) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    return word_at(memory);
  }

  const Gpu& gpu;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
};

void add_dependency(CUgraph graph, CUgraphNode from, CUgraphNode to) {
#if CUDA_VERSION >= 13000
  REQUIRE(cuGraphAddDependencies(graph, &from, &to, nullptr, 1) == CUDA_SUCCESS);
#else
  REQUIRE(cuGraphAddDependencies(graph, &from, &to, 1) == CUDA_SUCCESS);
#endif
}

CUresult update_whole(CUgraphExec exec, CUgraph graph) {
#if CUDA_VERSION >= 12000
  CUgraphExecUpdateResultInfo result = {};
  return cuGraphExecUpdate(exec, graph, &result);
#else
  CUgraphNode bad = nullptr;
  CUgraphExecUpdateResult result = {};
  return cuGraphExecUpdate(exec, graph, &bad, &result);
#endif
}

}  // namespace

TEST_CASE("Nodes answer with their parameters, types and dependencies") {
  Gpu gpu;
  const CUdeviceptr memory = gpu.words(1);
  AddNodes nodes(gpu);
  const CUgraphNode add = nodes.add(memory, 2);
  const CUgraphNode set = nodes.set(memory, 5);
  CUgraphNodeType type{};
  CHECK(cuGraphNodeGetType(add, &type) == CUDA_SUCCESS);
  CHECK(type == CU_GRAPH_NODE_TYPE_KERNEL);
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  REQUIRE(cuGraphKernelNodeGetParams(add, &kernel) == CUDA_SUCCESS);
  CHECK(kernel.func == gpu.kernel("add_value"));
  CHECK(kernel.blockDimX == 32);
  CHECK(*static_cast<CUdeviceptr*>(kernel.kernelParams[0]) == memory);
  CHECK(*static_cast<std::uint32_t*>(kernel.kernelParams[2]) == 2);
  CUDA_MEMSET_NODE_PARAMS filled = {};
  REQUIRE(cuGraphMemsetNodeGetParams(set, &filled) == CUDA_SUCCESS);
  CHECK(filled.value == 5);
  CHECK(cuGraphMemsetNodeGetParams(add, &filled) == CUDA_ERROR_INVALID_VALUE);
  CUlaunchAttributeValue value = {};
  value.cooperative = 1;
  CHECK(cuGraphKernelNodeSetAttribute(add, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS);
  value.cooperative = 0;
  CHECK(cuGraphKernelNodeGetAttribute(add, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &value) == CUDA_SUCCESS);
  CHECK(value.cooperative == 1);
  // The node that was added last runs first.
  add_dependency(nodes.graph, set, add);
  nodes.instantiate();
  CHECK(nodes.launched(memory) == 7);
}

TEST_CASE("Updates of nodes have effect on later launches") {
  Gpu gpu;
  const CUdeviceptr memory = gpu.words(1);
  AddNodes nodes(gpu);
  const CUgraphNode first = nodes.add(memory, 2);
  const CUgraphNode second = nodes.add(memory, 10);
  add_dependency(nodes.graph, first, second);
  nodes.instantiate();
  CHECK(nodes.launched(memory) == 12);
  nodes.with_kernel(memory, 3, [&](const CUDA_KERNEL_NODE_PARAMS& kernel) {
    CHECK(cuGraphExecKernelNodeSetParams(nodes.exec, first, &kernel) == CUDA_SUCCESS);
    CHECK(cuGraphExecKernelNodeSetParams(nodes.exec, nullptr, &kernel) == CUDA_ERROR_INVALID_VALUE);
  });
  CHECK(nodes.launched(memory) == 13);
  CHECK(cuGraphNodeSetEnabled(nodes.exec, second, 0) == CUDA_SUCCESS);
  CHECK(nodes.launched(memory) == 3);
  unsigned enabled = 1;
  CHECK(cuGraphNodeGetEnabled(nodes.exec, second, &enabled) == CUDA_SUCCESS);
  CHECK(enabled == 0);
  CHECK(cuGraphNodeSetEnabled(nodes.exec, second, 1) == CUDA_SUCCESS);
  CHECK(update_whole(nodes.exec, nodes.graph) == CUDA_SUCCESS);
  CHECK(nodes.launched(memory) == 12);
  AddNodes other(gpu);
  other.add(memory, 2);
  CHECK(update_whole(nodes.exec, other.graph) == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK(nodes.launched(memory) == 12);
}

TEST_CASE("A child graph is a copy, and can be replaced in an executable graph") {
  Gpu gpu;
  const CUdeviceptr memory = gpu.words(1);
  AddNodes child(gpu);
  child.add(memory, 2);
  AddNodes parent(gpu);
  CUgraphNode node = nullptr;
  REQUIRE(cuGraphAddChildGraphNode(&node, parent.graph, nullptr, 0, child.graph) == CUDA_SUCCESS);
  CUgraph inner = nullptr;
  CHECK(cuGraphChildGraphNodeGetGraph(node, &inner) == CUDA_SUCCESS);
  CHECK(inner != child.graph);
  parent.instantiate();
  CHECK(parent.launched(memory) == 2);
  AddNodes other(gpu);
  other.add(memory, 4);
  CHECK(cuGraphExecChildGraphNodeSetParams(parent.exec, node, other.graph) == CUDA_SUCCESS);
  CHECK(parent.launched(memory) == 4);
}

TEST_CASE("Launches of an executable graph run one after the other in all streams") {
  Gpu gpu;
  const CUdeviceptr memory = gpu.words(1);
  AddNodes nodes(gpu);
  nodes.add(memory, 1);
  nodes.instantiate();
  const CUstream one = gpu.stream();
  const CUstream two = gpu.stream();
  Barrier barrier(one);
  REQUIRE(cuGraphLaunch(nodes.exec, one) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(nodes.exec, two) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(two) == CUDA_ERROR_NOT_READY);
  barrier.open();
  CHECK(cuStreamSynchronize(two) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 2);
}

}  // namespace sharedgpu::simgpu_test
