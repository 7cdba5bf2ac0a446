// SPDX-License-Identifier: Apache-2.0
// Many threads with their own streams work on parts of one device's memory. Each thread has two streams,
// which wait for each other by events. At the end, every part is verified.
#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

struct Options {
  std::string bytes = "75%";
  unsigned threads = 8;
  unsigned iterations = 20;
};

// The work of one thread: two streams work on the buffer in turn, and wait for each other by events.
bool work(CUcontext context, const Kernels& kernels, std::size_t bytes, std::uint64_t seed,
          unsigned iterations) {
  use(context);
  CUstream streams[2] = {};
  CUevent events[2] = {};
  for (int i = 0; i < 2; ++i) {
    check(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  }
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, bytes / 8 * 8), "cuMemAlloc");
  Buffer buffer(kernels, memory, bytes, seed);
  buffer.fill(streams[0]);
  for (unsigned i = 0; i < iterations; ++i) {
    unsigned turn = i % 2;
    buffer.step(i, streams[turn]);
    check(cuEventRecord(events[turn], streams[turn]), "cuEventRecord");
    check(cuStreamWaitEvent(streams[1 - turn], events[turn], 0), "cuStreamWaitEvent");
    if (i % 5 == 4) check(cuStreamSynchronize(streams[turn]), "cuStreamSynchronize");
  }
  for (CUstream stream : streams) check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  bool right = buffer.verify(iterations, streams[0]);
  for (int i = 0; i < 2; ++i) {
    check(cuEventDestroy(events[i]), "cuEventDestroy");
    check(cuStreamDestroy(streams[i]), "cuStreamDestroy");
  }
  buffer.free();
  return right;
}

void run(const Options& options) {
  CUcontext context = start();
  std::size_t whole = 0;
  check(cuDeviceTotalMem(&whole, 0), "cuDeviceTotalMem");
  std::size_t bytes = parse_size(options.bytes, whole) / options.threads;
  Kernels kernels;
  std::atomic<unsigned> right{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < options.threads; ++i)
    threads.emplace_back([&, i] {
      if (work(context, kernels, bytes, i + 1, options.iterations)) ++right;
    });
  for (std::thread& thread : threads) thread.join();
  if (right != options.threads) fail("a thread's memory is wrong");
  std::printf("threads: %u threads, every byte verified\n", options.threads);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Works on device memory from many threads and streams and verifies it.");
  Options options;
  app.add_option("--bytes", options.bytes, "device memory: a size, or a percentage of the device");
  app.add_option("--threads", options.threads, "threads, each with two streams").positive();
  app.add_option("--iterations", options.iterations, "kernels a thread").positive();
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
