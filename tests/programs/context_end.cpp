// SPDX-License-Identifier: Apache-2.0
// Checks which memory is freed with a context: stream-ordered memory outlives its context. If the driver
// refuses to destroy a context, all memory keeps its contents.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);  // cuda.h may lack version 2

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

// Returns the free memory when no free is pending any more: memory that is freed during a capture, or whose
// context ends, becomes free a moment later.
std::size_t settled_free_memory() {
  for (std::size_t before = free_memory();;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const std::size_t now = free_memory();
    if (now == before) return now;
    before = now;
  }
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

// Checks that the driver refuses `destroy` while `pooled` blocks of a pool exist, and that the refusal
// changes no memory.
template <class Destroy>
void refused(Destroy destroy, unsigned pooled = 2) {
  const Kernels kernels;
  const CUstream stream = new_stream();
  Buffer plain(kernels, kSize, 99);
  Blocks blocks;
  blocks.add(pooled, kSize, kernels, stream);
  expect(destroy() != CUDA_SUCCESS, "the driver refuses");
  expect(plain.verify(0, stream), "memory is unchanged if the driver refuses the destruction");
  blocks.verify(kernels, stream, "stream-ordered memory is unchanged if the driver refuses the destruction");
  plain.step(0, stream);
  blocks.add(2, kSize, kernels, stream);
  blocks.verify(kernels, stream, "work goes on");
  expect(plain.verify(1, stream), "its work is done");
  blocks.free(stream);
  plain.free();
  check(cuStreamDestroy(stream), "cuStreamDestroy");
}

// Two contexts have blocks of one pool, in memory that the first context allocated; then the first context is
// destroyed.
void outlived(double seconds) {
  const CUcontext first = make();
  const CUstream its = new_stream();
  check(cuMemFreeAsync(allocate(24 << 20, its), its), "cuMemFreeAsync");  // the pool keeps this memory
  check(cuStreamSynchronize(its), "cuStreamSynchronize");
  CUdeviceptr plain = 0;
  check(cuMemAlloc(&plain, kSize), "cuMemAlloc");
  const Kernels kernels;
  Blocks blocks;
  blocks.add(3, kSize, kernels, its);
  check(cuCtxPopCurrent(nullptr), "cuCtxPopCurrent");

  const CUcontext second = make();
  const Kernels others;
  const CUstream stream = new_stream();
  blocks.add(3, kSize, others, stream);
  check(cuCtxPushCurrent(first), "cuCtxPushCurrent");
  check(cuStreamBeginCapture(new_stream(), CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
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

// Memory is freed during a capture, in a context that is then destroyed. This must not affect later
// allocations at the same address.
void freed_in_capture() {
  const CUcontext context = make();
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, kSize), "cuMemAlloc");
  const CUstream stream = new_stream();
  check(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
  check(cuMemFree(memory), "cuMemFree");
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(cuCtxDestroy(context), "cuCtxDestroy");

  CUdeviceptr managed = 0;
  check(cuMemAllocManaged(&managed, kSize, CU_MEM_ATTACH_GLOBAL), "cuMemAllocManaged");
  const Kernels kernels;
  Buffer buffer(kernels, managed, kSize, 5);
  buffer.fill(nullptr);
  std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // deferred frees happen within a second
  CUdeviceptr other = 0;
  check(cuMemAlloc(&other, kSize), "cuMemAlloc");
  expect(buffer.verify(0, nullptr), "nobody frees another's memory");
  check(cuMemFree(other), "cuMemFree");
  check(cuMemFree(managed), "cuMemFree");
}

bool is_active() {
  unsigned flags = 0;
  int active = -1;
  check(cuDevicePrimaryCtxGetState(0, &flags, &active), "cuDevicePrimaryCtxGetState");
  return active != 0;
}

// One thread allocates and frees, while another thread tries to destroy the context, which the driver
// refuses.
void refused_beside_work(CUcontext primary) {
  const std::size_t before = settled_free_memory();
  std::atomic<bool> ends{false};
  std::thread destroyer([&] {
    while (!ends) expect(cuCtxDestroy(primary) != CUDA_SUCCESS, "the driver refuses");
  });
  for (int round = 0; round < 200; ++round) {
    CUdeviceptr memory = 0;
    check(cuMemAlloc(&memory, kSize), "cuMemAlloc");
    check(cuMemsetD8(memory, 1, kSize), "cuMemsetD8");
    check(cuMemFree(memory), "cuMemFree during a refused destruction");
  }
  ends = true;
  destroyer.join();
  expect(settled_free_memory() >= before, "a refused destruction leaves nothing behind");
}

// The primary context ends with the program's last reference, even if a pool holds memory, and can be
// retained again.
void primary_released() {
  CUcontext primary = nullptr;
  const CUcontext made = make();
  const auto hold = [&] {
    check(cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
    use(primary);
  };
  const auto let_go = [&] {
    use(made);
    check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
  };
  hold();
  Blocks blocks;
  {
    const Kernels kernels;
    blocks.add(2, kSize, kernels, nullptr);
  }
  let_go();
  expect(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT, "a reference too many is none");
  for (int round = 0; round < 6; ++round) {
    hold();
    CUdeviceptr memory = 0;
    check(cuMemAlloc(&memory, free_memory() / 2), "cuMemAlloc, of what went with the context before");
    let_go();
  }
  {
    const Kernels kernels;
    blocks.verify(kernels, nullptr, "stream-ordered memory outlives the primary context");
  }
  blocks.free(nullptr);
  expect(!is_active(), "a primary context without a reference is not active");

  hold();
  {
    const Kernels kernels;
    blocks.add(2, kSize, kernels, nullptr);
  }
  CUdeviceptr lost = 0;
  check(cuMemAlloc(&lost, free_memory() / 2), "cuMemAlloc");
  use(made);
  const Kernels kernels;
  blocks.add(2, kSize, kernels, nullptr);
  check(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset");
  blocks.verify(kernels, nullptr, "stream-ordered memory outlives a reset of the device");
  expect(cuMemFree(lost) == CUDA_ERROR_INVALID_VALUE, "other memory does not");
  blocks.add(2, kSize, kernels, nullptr);
  blocks.verify(kernels, nullptr, "a reset does not keep a pool from growing");
  blocks.free(nullptr);
  hold();
  let_go();
  expect(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS, "a reset takes no reference");
  expect(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT, "there are no more");
  check(cuCtxDestroy(made), "cuCtxDestroy");
}

void wait_for_flag(void* flag) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!*static_cast<std::atomic<bool>*>(flag))
    expect(std::chrono::steady_clock::now() < end, "who ends the primary context holds up no other thread");
}

// Work in one context waits for an action of a thread. The thread acts while another thread ends the primary
// context.
template <class End>
void ended_beside_waiting_work(End end_primary) {
  const CUcontext made = make();
  const CUstream stream = new_stream();
  CUcontext primary = nullptr;
  check(cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
  use(primary);
  CUdeviceptr plain = 0;
  check(cuMemAlloc(&plain, kSize), "cuMemAlloc");
  use(made);
  check(cuMemFreeAsync(allocate(kSize, stream), stream), "cuMemFreeAsync");
  std::atomic<bool> flag{false};
  check(cuLaunchHostFunc(stream, wait_for_flag, &flag), "cuLaunchHostFunc");
  std::thread ender(end_primary);
  std::thread other([&] {
    use(made);
    const CUstream its = new_stream();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    is_active();
    check(cuMemFreeAsync(allocate(24 << 20, its), its), "cuMemFreeAsync");
    flag = true;
  });
  other.join();
  ender.join();
  check(cuCtxDestroy(made), "cuCtxDestroy");
}

// Blocks that one thread allocates and another thread frees. All bytes of a block have the same value.
class HandedOver {
 public:
  // Waits while there are 30 blocks.
  void add(CUdeviceptr memory, unsigned char byte) {
    std::unique_lock lock(mutex_);
    fewer_.wait(lock, [&] { return blocks_.size() < 30; });
    blocks_.push_back({memory, byte});
  }
  // Returns false if there was no block.
  bool check_and_free(CUstream stream) {
    std::vector<std::pair<CUdeviceptr, unsigned char>> mine;
    {
      const std::lock_guard lock(mutex_);
      mine.swap(blocks_);
    }
    fewer_.notify_all();
    for (const auto& [memory, byte] : mine) {
      unsigned char found = 0;
      check(cuMemcpyDtoHAsync(&found, memory, 1, stream), "cuMemcpyDtoHAsync");
      check(cuStreamSynchronize(stream), "cuStreamSynchronize");
      expect(found == byte, "who has a block of a context that is gone reads what was written there");
      check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
    }
    return !mine.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable fewer_;
  std::vector<std::pair<CUdeviceptr, unsigned char>> blocks_;
};

// One thread retains and releases the primary context, and another thread creates and destroys other
// contexts. Both threads allocate blocks of a pool, which the calling thread verifies and frees.
void come_and_go(double seconds) {
  const CUcontext lasting = make();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  HandedOver handed_over;
  std::atomic<int> makers{2};
  const auto leave_blocks = [&](unsigned round) {
    const CUstream stream = new_stream();
    CUdeviceptr own = 0;
    check(cuMemAlloc(&own, 1 << 20), "cuMemAlloc");
    for (unsigned i = 0; i < 3; ++i) {
      const auto byte = static_cast<unsigned char>(round + i);
      const CUdeviceptr memory = allocate(4096 + 300'000 * i, stream);
      check(cuMemsetD8Async(memory, byte, 4096, stream), "cuMemsetD8Async");
      check(cuStreamSynchronize(stream), "cuStreamSynchronize");
      handed_over.add(memory, byte);
    }
  };
  const auto repeat = [&](auto once) {
    for (unsigned round = 0; std::chrono::steady_clock::now() < end; ++round) once(round);
    --makers;
  };
  std::thread primary([&] {
    repeat([&](unsigned round) {
      CUcontext context = nullptr;
      check(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
      use(context);
      leave_blocks(round);
      use(nullptr);
      check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
    });
  });
  std::thread made([&] {
    repeat([&](unsigned round) {
      const CUcontext context = make();
      leave_blocks(round);
      check(cuCtxDestroy(context), "cuCtxDestroy");
    });
  });
  const CUstream stream = new_stream();
  while (makers > 0 || handed_over.check_and_free(stream)) handed_over.check_and_free(stream);
  primary.join();
  made.join();
  check(cuCtxDestroy(lasting), "cuCtxDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Destroys contexts with memory in them.");
  bool refuses = false;
  app.add_flag("--refused", refuses, "the driver refuses the first destruction of either kind");
  double seconds = 0;
  app.add_option("--pause", seconds, "seconds to wait for when a context has gone");
  double come_and_go_for = 1;
  app.add_option("--come-and-go", come_and_go_for, "seconds for which threads make and destroy contexts");
  bool real = false;
  app.add_flag("--real-gpu", real, "leave out what the real driver waits for, see tests/simgpu/README.md");
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
    refused([] { return cuDevicePrimaryCtxReset(0); }, 0);
  }
  refused_beside_work(primary);
  freed_in_capture();
  check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  const std::size_t before = settled_free_memory();
  for (int round = 0; round < 3; ++round) outlived(seconds);
  check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (free_memory() < before) {
    expect(std::chrono::steady_clock::now() < end, "nothing is left of contexts that were destroyed");
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  use(nullptr);
  check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease");
  primary_released();
  if (!real) {
    const auto release = [] { check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease"); };
    ended_beside_waiting_work(release);
    ended_beside_waiting_work([] { check(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset"); });
    release();
  }
  come_and_go(come_and_go_for);
  std::printf("context_end: all as it should be\n");
  return 0;
}
