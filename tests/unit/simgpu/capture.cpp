// SPDX-License-Identifier: Apache-2.0
#include <thread>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {
namespace {

CUstreamCaptureStatus status(CUstream stream) {
  CUstreamCaptureStatus result = CU_STREAM_CAPTURE_STATUS_NONE;
  REQUIRE(cuStreamIsCapturing(stream, &result) == CUDA_SUCCESS);
  return result;
}

// Ends a capture that must have been invalidated.
void expect_invalidated(CUstream stream) {
  CHECK(status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(graph == nullptr);
  CHECK(status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

CUgraph end(CUstream stream) {
  CUgraph graph = nullptr;
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  return graph;
}

}  // namespace

TEST_CASE("Captured work does not run, and each launch of the graph runs it") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(2);
  CUstream stream = gpu.stream();
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  CHECK(status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  REQUIRE(gpu.add(memory, 1, 3, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoDAsync(memory + 4, memory, 4, stream) == CUDA_SUCCESS);
  CUgraph graph = end(stream);
  CHECK(word_at(memory) == 0);

  std::size_t nodes = 0;
  REQUIRE(cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
  CHECK(nodes == 2);
  CUgraphExec exec = nullptr;
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphDestroy(graph) == CUDA_SUCCESS);
  for (int i = 0; i < 4; ++i) REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory + 4) == 12);
  CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS);
}

TEST_CASE("A capture spreads over streams by events and must be joined") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(2);
  CUstream one = gpu.stream(), two = gpu.stream();
  CUevent fork = nullptr, join = nullptr;
  REQUIRE(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  auto spread = [&] {
    REQUIRE(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    REQUIRE(gpu.add(memory, 1, 1, one) == CUDA_SUCCESS);
    REQUIRE(cuEventRecord(fork, one) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(two, fork, 0) == CUDA_SUCCESS);
    CHECK(status(two) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
    REQUIRE(gpu.add(memory, 1, 10, two) == CUDA_SUCCESS);
  };
  SECTION("joined") {
    spread();
    REQUIRE(cuEventRecord(join, two) == CUDA_SUCCESS);
    REQUIRE(cuStreamWaitEvent(one, join, 0) == CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    REQUIRE(cuGraphInstantiateWithFlags(&exec, end(one), 0) == CUDA_SUCCESS);
    REQUIRE(cuGraphLaunch(exec, one) == CUDA_SUCCESS);
    REQUIRE(cuStreamSynchronize(one) == CUDA_SUCCESS);
    CHECK(word_at(memory) == 11);
  }
  SECTION("not joined") {
    spread();
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(one, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    CHECK(status(two) == CU_STREAM_CAPTURE_STATUS_NONE);
  }
  SECTION("ended in the wrong stream") {
    spread();
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(two, &graph) == CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    cuStreamEndCapture(one, &graph);
  }
}

TEST_CASE("Synchronizing calls invalidate a capture") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  SECTION("cuStreamSynchronize") {
    CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  SECTION("cuStreamQuery") {
    CHECK(cuStreamQuery(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  SECTION("cuCtxSynchronize") {
    CHECK(cuCtxSynchronize() == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  SECTION("cuMemAlloc") {
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 8) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
}

TEST_CASE("The legacy stream must not meet a capture in a blocking stream") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream stream = gpu.stream(CU_STREAM_DEFAULT);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(gpu.add(memory, 1, 1, nullptr) == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  expect_invalidated(stream);
  CUgraph graph = nullptr;
  CHECK(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_RELAXED) ==
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(graph == nullptr);
}

TEST_CASE("The mode decides which threads an unsafe call is forbidden to") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  auto allocate_in_other_thread = [&](CUstreamCaptureMode thread_mode) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      REQUIRE(cuCtxSetCurrent(gpu.context) == CUDA_SUCCESS);
      REQUIRE(cuThreadExchangeStreamCaptureMode(&thread_mode) == CUDA_SUCCESS);
      CUdeviceptr memory = 0;
      result = cuMemAlloc(&memory, 8);
    }).join();
    return result;
  };
  SECTION("global: to all") {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(allocate_in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    expect_invalidated(stream);
  }
  SECTION("global, but the other thread opted out") {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    CHECK(allocate_in_other_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    end(stream);
  }
  SECTION("thread local: to the capturing thread") {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
    CHECK(allocate_in_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    end(stream);
  }
  SECTION("relaxed: to none") {
    REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 8) == CUDA_SUCCESS);
    end(stream);
  }
}

TEST_CASE("A capture must not depend on work outside of the capture") {
  Gpu gpu;
  CUstream stream = gpu.stream(), other = gpu.stream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, other) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(cuStreamWaitEvent(stream, event, 0) == CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  expect_invalidated(stream);
}

TEST_CASE("An event recorded in a capture cannot be waited for by the host") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUevent event = nullptr;
  REQUIRE(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  REQUIRE(cuEventRecord(event, stream) == CUDA_SUCCESS);
  CHECK(cuEventQuery(event) == CUDA_ERROR_CAPTURED_EVENT);
  CUgraph graph = nullptr;
  cuStreamEndCapture(stream, &graph);
}

TEST_CASE("Captures begin once and end only where they began") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_ERROR_ILLEGAL_STATE);
  std::thread([&] {
    REQUIRE(cuCtxSetCurrent(gpu.context) == CUDA_SUCCESS);
    CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  }).join();
  cuStreamEndCapture(stream, &graph);
  CHECK(status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
}

TEST_CASE("Graphs can be made node by node") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(4);
  CUgraph graph = nullptr;
  REQUIRE(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS set = {};
  set.dst = memory;
  set.elementSize = 4;
  set.value = 5;
  set.width = 4;
  set.height = 1;
  CUgraphNode first = nullptr, second = nullptr;
  REQUIRE(cuGraphAddMemsetNode(&first, graph, nullptr, 0, &set, gpu.context) == CUDA_SUCCESS);
  std::uint64_t count = 4;
  std::uint32_t value = 2;
  void* arguments[] = {&memory, &count, &value};
  CUDA_KERNEL_NODE_PARAMS kernel = {};
  kernel.func = gpu.kernel("add_value");
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = 1;
  kernel.blockDimX = 32;
  kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.kernelParams = arguments;
  REQUIRE(cuGraphAddKernelNode(&second, graph, &first, 1, &kernel) == CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(exec, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory + 12) == 7);
}

}  // namespace sharedgpu::simgpu_test
