// SPDX-License-Identifier: Apache-2.0
// Makes graphs that allocate and free memory, by capture and node by node. Launches the graphs, trims their
// memory, and launches the graphs again.
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

std::uint64_t reserved() {
  cuuint64_t value = 0;
  check(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value),
        "cuDeviceGetGraphMemAttribute");
  return value;
}

void expect(bool good, const char* what) {
  if (!good) fail(std::string("not so: ") + what);
}

// The graph fills memory of its own with a value, and copies this memory to `target`.
CUgraph captured(CUstream stream, CUdeviceptr target, std::size_t bytes) {
  CUgraph graph = nullptr;
  CUdeviceptr memory = 0;
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), "cuStreamBeginCapture");
  check(cuMemAllocAsync(&memory, bytes, stream), "cuMemAllocAsync in a capture");
  check(cuMemsetD32Async(memory, 0x51515151, bytes / 4, stream), "cuMemsetD32Async");
  check(cuMemcpyDtoDAsync(target, memory, bytes, stream), "cuMemcpyDtoDAsync");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync in a capture");
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  return graph;
}

CUgraph built(std::size_t bytes) {
  CUgraph graph = nullptr;
  check(cuGraphCreate(&graph, 0), "cuGraphCreate");
  CUDA_MEM_ALLOC_NODE_PARAMS wanted = {};
  wanted.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.bytesize = bytes;
  CUgraphNode allocation = nullptr;
  check(cuGraphAddMemAllocNode(&allocation, graph, nullptr, 0, &wanted), "cuGraphAddMemAllocNode");
  CUgraphNode release = nullptr;
  check(cuGraphAddMemFreeNode(&release, graph, &allocation, 1, wanted.dptr), "cuGraphAddMemFreeNode");
  return graph;
}

void run(CUgraph graph, CUstream stream, unsigned replays) {
  CUgraphExec exec = nullptr;
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  for (unsigned i = 0; i < replays; ++i) check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Launches graphs that have memory of their own.");
  std::size_t bytes = 32 << 20;
  unsigned replays = 3;
  double seconds = 0;
  app.add_option("--bytes", bytes, "bytes of one allocation");
  app.add_option("--replays", replays, "launches of each graph");
  app.add_option("--hold", seconds, "seconds to keep the memory for");
  app.parse(argc, argv);

  start();
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUdeviceptr target = 0;
  check(cuMemAlloc(&target, bytes), "cuMemAlloc");
  check(cuMemsetD8(target, 0, bytes), "cuMemsetD8");
  check(cuCtxSynchronize(),
        "cuCtxSynchronize");  // a memset is not ordered before work of a non-blocking stream
  run(captured(stream, target, bytes), stream, replays);
  std::vector<std::uint32_t> words(bytes / 4);
  check(cuMemcpyDtoH(words.data(), target, bytes), "cuMemcpyDtoH");
  for (std::uint32_t word : words) expect(word == 0x51515151, "the graph has written what it should");
  run(built(bytes), stream, replays);
  expect(reserved() >= bytes, "graphs keep their memory");
  std::printf("graph_memory: verified, %llu bytes kept\n", static_cast<unsigned long long>(reserved()));
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  check(cuDeviceGraphMemTrim(0), "cuDeviceGraphMemTrim");
  expect(reserved() == 0, "nothing is kept that was trimmed");
  std::printf("graph_memory: trimmed\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return 0;
}
