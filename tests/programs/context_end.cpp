// SPDX-License-Identifier: Apache-2.0
// What goes with a context and what does not: stream-ordered memory outlives the context in which it was
// allocated, and where the driver refuses to destroy a context nothing is lost.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);  // cuda.h may know another

namespace {

constexpr std::size_t kSize = 3 << 20;

void expect(bool good, const char* what) {
  if (!good) fail(std::string("not so: ") + what);
}

CUcontext make() {
  CUcontext context = nullptr;
  check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  return context;
}

CUstream make_stream() {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

CUdeviceptr allocate(std::size_t size, CUstream stream) {
  CUdeviceptr memory = 0;
  check(cuMemAllocAsync(&memory, size, stream), "cuMemAllocAsync");
  return memory;
}

std::size_t free_memory() {
  std::size_t free = 0;
  check(cuMemGetInfo(&free, nullptr), "cuMemGetInfo");
  return free;
}

// Blocks of the default pool, each with a pattern of its own.
class Blocks {
 public:
  void add(unsigned count, std::size_t size, const Kernels& kernels, CUstream stream) {
    for (; count > 0; --count) {
      all_.push_back({allocate(size, stream), size});
      buffer(all_.size() - 1, kernels).fill(stream);
    }
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  }
  void verify(const Kernels& kernels, CUstream stream, const char* what) const {
    for (std::size_t i = 0; i < all_.size(); ++i) expect(buffer(i, kernels).verify(0, stream), what);
  }
  void free(CUstream stream) {
    for (const Block& block : all_) check(cuMemFreeAsync(block.memory, stream), "cuMemFreeAsync");
    check(cuStreamSynchronize(stream), "cuStreamSynchronize");
    all_.clear();
  }

 private:
  struct Block {
    CUdeviceptr memory;
    std::size_t size;
  };
  Buffer buffer(std::size_t index, const Kernels& kernels) const {
    return {kernels, all_[index].memory, all_[index].size, index};
  }
  std::vector<Block> all_;
};

// The driver refuses `destroy`.
template <class Destroy>
void refused(Destroy destroy) {
  const Kernels kernels;
  const CUstream stream = make_stream();
  Buffer plain(kernels, kSize, 99);
  Blocks blocks;
  blocks.add(2, kSize, kernels, stream);
  expect(destroy() != CUDA_SUCCESS, "the driver refuses");
  expect(plain.verify(0, stream), "where the driver refuses, memory is as it was");
  blocks.verify(kernels, stream, "where the driver refuses, stream-ordered memory is as it was");
  plain.step(0, stream);
  blocks.add(2, kSize, kernels, stream);
  blocks.verify(kernels, stream, "work goes on");
  expect(plain.verify(1, stream), "its work is done");
  blocks.free(stream);
  plain.free();
  check(cuStreamDestroy(stream), "cuStreamDestroy");
}

// Two contexts have blocks of one pool, in memory that the first of them took; and it goes.
void outlived(double seconds) {
  const CUcontext first = make();
  const CUstream its = make_stream();
  check(cuMemFreeAsync(allocate(24 << 20, its), its), "cuMemFreeAsync");  // the pool keeps it
  check(cuStreamSynchronize(its), "cuStreamSynchronize");
  CUdeviceptr plain = 0;
  check(cuMemAlloc(&plain, kSize), "cuMemAlloc");
  const Kernels kernels;
  Blocks blocks;
  blocks.add(3, kSize, kernels, its);
  check(cuCtxPopCurrent(nullptr), "cuCtxPopCurrent");

  const CUcontext second = make();
  const Kernels others;
  const CUstream stream = make_stream();
  blocks.add(3, kSize, others, stream);
  check(cuCtxPushCurrent(first), "cuCtxPushCurrent");
  check(cuStreamBeginCapture(make_stream(), CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  check(cuCtxDestroy(first), "cuCtxDestroy");
  CUcontext current = nullptr;
  check(cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  expect(current == second, "a context that is destroyed is current no more");
  std::printf("context_end: a context is gone\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  blocks.verify(others, stream, "stream-ordered memory outlives the context");
  blocks.add(8, kSize, others, stream);
  blocks.verify(others, stream, "no memory is given out twice");
  blocks.free(stream);
  check(cuCtxDestroy(second), "cuCtxDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Destroys contexts with memory in them.");
  bool refuses = false;
  app.add_flag("--refused", refuses, "the driver refuses the first destruction of either kind");
  double seconds = 0;
  app.add_option("--pause", seconds, "seconds to wait for when a context has gone");
  app.parse(argc, argv);

  const CUcontext primary = start();
  CUmemoryPool pool = nullptr;
  check(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
  cuuint64_t all = ~0ull;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
  refused([&] { return cuCtxDestroy(primary); });
  if (refuses) {
    const CUcontext made = make();
    refused([&] { return cuCtxDestroy(made); });
    check(cuCtxDestroy(made), "cuCtxDestroy");
    refused([] { return cuDevicePrimaryCtxReset(0); });
  }
  check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  const std::size_t before = free_memory();
  for (int round = 0; round < 3; ++round) outlived(seconds);
  check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (free_memory() != before) {
    expect(std::chrono::steady_clock::now() < end, "nothing is left of contexts that were destroyed");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::printf("context_end: all as it should be\n");
  return 0;
}
