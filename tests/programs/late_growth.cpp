// SPDX-License-Identifier: Apache-2.0
// Allocates memory without which its turn cannot end: in the middle of a capture, or while work on the GPU
// waits for a submission after the allocation.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using namespace std::chrono_literals;

namespace {

constexpr auto kTurn = 1500ms;  // longer than a turn while another tenant waits

struct Options {
  std::string what = "capture";
  std::string bytes = "55%";
  std::string more = "20%";
  unsigned rounds = 3;
  bool frugal = false;
};

void synchronize(CUstream stream) { check(cuStreamSynchronize(stream), "cuStreamSynchronize"); }

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, bytes), "cuMemAlloc");
  return memory;
}

void must_be_right(const Buffer& buffer, std::uint64_t steps) {
  if (!buffer.verify(steps, nullptr)) fail("the device memory is not what the kernels made of it");
}

// Allocates during a capture, and works on this memory: at once, outside the capture, and then by the
// captured graph.
void in_a_capture(const Kernels& kernels, std::size_t bytes, unsigned round) {
  const CUstream captured = new_stream();
  const CUstream other = new_stream();
  check(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  std::this_thread::sleep_for(kTurn);
  Buffer more(kernels, allocate(bytes), bytes, round);
  more.fill(other);
  synchronize(other);
  more.step(0, captured);
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(captured, &graph), "cuStreamEndCapture");
  CUgraphExec executable = nullptr;
  check(cuGraphInstantiateWithFlags(&executable, graph, 0), "cuGraphInstantiateWithFlags");
  check(cuGraphLaunch(executable, captured), "cuGraphLaunch");
  synchronize(captured);
  must_be_right(more, 1);
  check(cuGraphExecDestroy(executable), "cuGraphExecDestroy");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
  more.free();
}

// The GPU waits for a word that is written only after more memory has been allocated and filled. With
// `frugal`, the program continues without more memory if the allocation is refused.
void for_the_gpu(const Kernels& kernels, Buffer& buffer, std::size_t bytes, unsigned round, bool frugal) {
  const CUdeviceptr word = allocate(sizeof(std::uint32_t));
  check(cuMemsetD32(word, 0, 1), "cuMemsetD32");
  const CUstream waits = new_stream();
  const CUstream goes_on = new_stream();
  check(cuStreamWaitValue32(waits, word, 1, CU_STREAM_WAIT_VALUE_GEQ), "cuStreamWaitValue32");
  buffer.step(round, waits);
  std::this_thread::sleep_for(kTurn);
  CUdeviceptr memory = 0;
  const CUresult result = cuMemAlloc(&memory, bytes);
  const bool refused = frugal && result == CUDA_ERROR_OUT_OF_MEMORY;
  if (!refused) check(result, "cuMemAlloc");
  Buffer more(kernels, memory, bytes, round);
  if (!refused) more.fill(goes_on);
  check(cuStreamWriteValue32(goes_on, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT), "cuStreamWriteValue32");
  synchronize(goes_on);
  synchronize(waits);
  check(cuMemFree(word), "cuMemFree");
  if (refused) return;
  must_be_right(more, 0);
  more.free();
}

void run(const Options& options) {
  start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  const std::size_t bytes = parse_size(options.more, whole);
  Kernels kernels;
  Buffer buffer(kernels, parse_size(options.bytes, whole), 17);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  for (unsigned round = 0; round < options.rounds; ++round) {
    if (options.what == "gpu") {
      for_the_gpu(kernels, buffer, bytes, round, options.frugal);
    } else {
      buffer.step(round, nullptr);
      check(cuCtxSynchronize(), "cuCtxSynchronize");
      in_a_capture(kernels, bytes, round);
    }
  }
  must_be_right(buffer, options.rounds);
  buffer.free();
  std::printf("late_growth: %u rounds, verified\n", options.rounds);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Allocates just when its turn cannot end without it.");
  Options options;
  app.add_option(
         "what", options.what,
         "capture: in the middle of one; gpu: while the GPU waits for what comes after the allocation")
      .one_of({"capture", "gpu"});
  app.add_option("--bytes", options.bytes, "device memory: a size, or a percentage of the device");
  app.add_option("--more", options.more, "what is allocated and freed in each round");
  app.add_option("--rounds", options.rounds, "how often").positive();
  app.add_flag("--frugal", options.frugal, "with gpu: goes on without more memory where there is none");
  app.parse(argc, argv);
  alarm(120);  // a hang is an error
  try {
    run(options);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  return 0;
}
