// SPDX-License-Identifier: Apache-2.0
// Creates several contexts at once, by three calls that create a context, each in its own thread. Destroys
// some contexts that have memory, while the other contexts work.
#include <atomic>
#include <cstdio>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

extern "C" {  // cuda.h defines cuCtxCreate as a macro for one of these functions
CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);
CUresult CUDAAPI cuCtxCreate_v3(CUcontext*, CUexecAffinityParam*, int, unsigned int, CUdevice);
}

namespace {

CUcontext make(unsigned kind) {
  CUcontext context = nullptr;
  switch (kind % 3) {
    case 0:
      check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
      check(cuCtxPushCurrent(context), "cuCtxPushCurrent");
      break;
    case 1:
      check(cuCtxCreate_v3(&context, nullptr, 0, CU_CTX_SCHED_AUTO, 0), "cuCtxCreate_v3");
      break;
    default:
      check(cuCtxCreate_v2(&context, CU_CTX_SCHED_BLOCKING_SYNC, 0), "cuCtxCreate_v2");
  }
  return context;
}

void destroy(unsigned kind, CUcontext context) {
  if (kind % 3 == 0)
    check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
  else
    check(cuCtxDestroy(context), "cuCtxDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Uses several contexts at once.");
  unsigned contexts = 6;
  std::string bytes = "16MiB";
  unsigned rounds = 3;
  app.add_option("--contexts", contexts, "how many at once");
  app.add_option("--bytes", bytes, "device memory in each");
  app.add_option("--rounds", rounds, "how often each is made anew");
  app.parse(argc, argv);

  check(cuInit(0), "cuInit");
  std::size_t size = 0;
  try {
    size = parse_size(bytes, 0);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  std::atomic<unsigned> verified{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < contexts; ++i)
    threads.emplace_back([&, i] {
      for (unsigned round = 0; round < rounds; ++round) {
        CUcontext context = make(i);
        Kernels kernels;
        Buffer buffer(kernels, size, i + 1);
        CUdeviceptr left_behind = 0;
        check(cuMemAlloc(&left_behind, size / 4), "cuMemAlloc");
        exercise(buffer, 10);
        ++verified;
        if (i % 3 == 0) {  // the primary context remains, since other threads use it
          buffer.free();
          check(cuMemFree(left_behind), "cuMemFree");
        }
        destroy(i, context);
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (verified != contexts * rounds) fail("a context's memory was not verified");
  std::printf("contexts: %u at once, %u times, every byte verified\n", contexts, rounds);
  return 0;
}
