// SPDX-License-Identifier: Apache-2.0
// Captures work on device memory into a graph, replays the graph while the memory is evicted and restored,
// and verifies the memory.
#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string bytes = "75%";
  unsigned steps = 4;  // number of steps in one graph
  unsigned replays = 5;
  double capture_ms = 0;
  double gap_ms = 0;
};

void run(const Options& options) {
  start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  Kernels kernels;
  Buffer buffer(kernels, parse_size(options.bytes, whole), 1);
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");

  // The iteration numbers are fixed in the graph: every replay does steps 0..n-1 again, so the buffer is
  // refilled before each replay.
  auto pause = [](double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); };
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), "cuStreamBeginCapture");
  buffer.fill(stream);
  for (unsigned i = 0; i < options.steps; ++i) {
    buffer.step(i, stream);
    pause(options.capture_ms / options.steps);
  }
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  CUgraphExec exec = nullptr;
  check(cuGraphInstantiateWithFlags(&exec, graph, 0), "cuGraphInstantiateWithFlags");
  check(cuGraphDestroy(graph), "cuGraphDestroy");

  for (unsigned replay = 0; replay < options.replays; ++replay) {
    check(cuGraphLaunch(exec, stream), "cuGraphLaunch");
    // One more step, to check that replays and plain launches keep their order.
    buffer.step(options.steps, stream);
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    pause(options.gap_ms);
  }
  if (!buffer.verify(options.steps + 1, stream)) fail("the graph's memory is wrong");
  check(cuGraphExecDestroy(exec), "cuGraphExecDestroy");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  buffer.free();
  std::printf("graph: %u replays of %u kernels, every byte verified\n", options.replays, options.steps + 1);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Captures a graph, replays it and verifies the memory it works on.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory: a size, or a percentage of the device");
  app.add_option("--steps", options.steps, "kernels in the graph").positive();
  app.add_option("--replays", options.replays, "launches of the graph").positive();
  app.add_option("--capture-ms", options.capture_ms, "how long the capture takes").not_negative();
  app.add_option("--gap-ms", options.gap_ms, "time without work after each replay").not_negative();
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
