// SPDX-License-Identifier: Apache-2.0
// Checks memory pools: their attributes, and the driver's answers to wrong calls. Also checks that no memory
// has two owners at once while streams allocate and free memory at random.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kSize = 3 << 20;

std::uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute attribute) {
  cuuint64_t value = 0;
  check(cuMemPoolGetAttribute(pool, attribute, &value), "cuMemPoolGetAttribute");
  return value;
}
std::uint64_t used(CUmemoryPool pool) { return attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT); }
std::uint64_t reserved(CUmemoryPool pool) { return attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT); }

void expect(bool good, const char* what) {
  if (!good) fail(std::string("not so: ") + what);
}

CUmemoryPool make_pool(CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE) {
  CUmemPoolProps properties = {};
  properties.handleTypes = handles;
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  check(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  return pool;
}

CUdeviceptr allocate(CUmemoryPool pool, std::size_t size, CUstream stream) {
  CUdeviceptr memory = 0;
  check(cuMemAllocFromPoolAsync(&memory, size, pool, stream), "cuMemAllocFromPoolAsync");
  return memory;
}

void synchronize(CUstream stream) { check(cuStreamSynchronize(stream), "cuStreamSynchronize"); }

void numbers(CUmemoryPool pool, CUstream stream) {
  const std::uint64_t before = used(pool);
  CUdeviceptr memory = allocate(pool, kSize, stream);
  expect(used(pool) >= before + kSize, "an allocation is in use");
  expect(reserved(pool) >= used(pool), "what is in use is reserved");
  expect(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= used(pool), "the high mark is no lower");
  CUmemoryPool found = nullptr;
  check(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 1), "MEMPOOL_HANDLE");
  expect(found == pool, "an address tells its pool");
  CUcontext context = nullptr;
  check(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory), "CONTEXT");
  expect(context == nullptr, "memory of a pool belongs to no context");
  CUdeviceptr base = 0;
  std::size_t size = 0;
  check(cuMemGetAddressRange(&base, &size, memory + kSize - 1), "cuMemGetAddressRange");
  expect(base == memory && size >= kSize, "an address tells its allocation");
  cuuint64_t keep = ~0ull;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep), "cuMemPoolSetAttribute");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  synchronize(stream);
  expect(used(pool) == before, "what is freed is in use no more");
  expect(reserved(pool) >= kSize, "a pool keeps as much as its threshold says");
  check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  expect(reserved(pool) == before, "a trimmed pool keeps nothing");
  cuuint64_t zero = 0;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), "cuMemPoolSetAttribute");
  expect(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == used(pool), "a high mark is reset");
}

// Call this only if no memory of `pool` has been in use since the pool was created or its high marks were
// reset.
void high_marks(CUmemoryPool pool, CUstream stream) {
  cuuint64_t zero = 0;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &zero), "cuMemPoolSetAttribute");
  for (int time = 0; time < 2; ++time) {
    expect(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0, "nothing was in use");
    expect(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 0, "nothing was reserved");
    check(cuMemFreeAsync(allocate(pool, kSize, stream), stream), "cuMemFreeAsync");
    synchronize(stream);
    expect(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) >= kSize, "the most there was in use");
    check(cuMemFreeAsync(allocate(pool, kSize, stream), stream), "cuMemFreeAsync");
    synchronize(stream);
    check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &zero), "cuMemPoolSetAttribute");
    check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &zero), "cuMemPoolSetAttribute");
  }
}

void not_of_a_pool() {
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, kSize), "cuMemAlloc");
  auto found = reinterpret_cast<CUmemoryPool>(&memory);
  check(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory + 1), "MEMPOOL_HANDLE");
  expect(found == nullptr, "memory of cuMemAlloc is of no pool");
  check(cuMemFree(memory), "cuMemFree");
}

void mistakes(CUmemoryPool pool, CUstream stream) {
  CUdeviceptr memory = allocate(pool, kSize, stream);
  expect(cuMemFreeAsync(memory + 512, stream) != CUDA_SUCCESS, "the middle of a block is not freed");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  synchronize(stream);
  expect(cuMemFreeAsync(memory, stream) != CUDA_SUCCESS, "nothing is freed twice");
  expect(cuMemFreeAsync(12345, stream) != CUDA_SUCCESS, "what was never allocated is not freed");
  CUdeviceptr plain = 0;
  check(cuMemAlloc(&plain, kSize), "cuMemAlloc");
  check(cuMemFreeAsync(plain, stream), "cuMemFreeAsync of memory of cuMemAlloc");
  memory = allocate(pool, kSize, stream);
  synchronize(stream);
  check(cuMemFree(memory), "cuMemFree of stream-ordered memory");
  CUdeviceptr none = 0;
  expect(cuMemAllocFromPoolAsync(&none, 1ull << 50, pool, stream) == CUDA_ERROR_OUT_OF_MEMORY,
         "a petabyte is out of memory");
}

void destroyed_pool(const Kernels& kernels, CUstream stream) {
  CUmemoryPool pool = make_pool();
  CUdeviceptr memory = allocate(pool, kSize, stream);
  Buffer buffer(kernels, memory, kSize, 7);
  check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  buffer.fill(stream);
  expect(buffer.verify(0, stream), "memory outlives its pool");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync after cuMemPoolDestroy");
}

// A copy of the last words of a block to the host, submitted just before the block is freed.
struct Copy {
  std::uint32_t* host;
  std::size_t words;
  std::uint32_t value;
};

void at_random(CUmemoryPool pool, unsigned rounds, unsigned streams, std::size_t largest,
               std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<CUstream> all(streams);
  for (CUstream& stream : all) check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  constexpr std::size_t kMost = 1024;
  void* host = nullptr;
  check(cuMemAllocHost(&host, std::max(rounds, 1u) * kMost * 4), "cuMemAllocHost");
  std::vector<Copy> copies;
  for (unsigned round = 0; round < rounds; ++round) {
    CUstream& stream = all[random() % streams];
    const std::size_t words = std::max<std::size_t>((largest >> (random() % 10)) / 4, 1);
    CUdeviceptr memory = allocate(pool, words * 4, stream);
    const Copy copy = {static_cast<std::uint32_t*>(host) + round * kMost, std::min(words, kMost), round + 1};
    check(cuMemsetD32Async(memory, copy.value, words, stream), "cuMemsetD32Async");
    check(cuMemcpyDtoHAsync(copy.host, memory + (words - copy.words) * 4, copy.words * 4, stream),
          "cuMemcpyDtoHAsync");
    copies.push_back(copy);
    check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
    if (random() % 50 == 0) {  // the new stream may get the same handle
      check(cuStreamDestroy(stream), "cuStreamDestroy");
      check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    }
  }
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  for (const Copy& copy : copies)
    for (std::size_t i = 0; i < copy.words; ++i)
      expect(copy.host[i] == copy.value, "memory is in one hand at a time");
  check(cuMemFreeHost(host), "cuMemFreeHost");
  for (CUstream stream : all) check(cuStreamDestroy(stream), "cuStreamDestroy");
}

// If memory is short, an allocation waits for memory that an earlier cuMemFreeAsync frees after a long
// kernel.
void freed_late(const Kernels& kernels, CUmemoryPool pool, CUstream stream, std::size_t most) {
  const CUdeviceptr memory = allocate(pool, most, stream);
  const std::uint64_t nanoseconds = 300'000'000;
  launch(kernels["spin"], 1, stream, {&nanoseconds});
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  CUstream other = nullptr;
  check(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuMemFreeAsync(allocate(pool, most, other), other), "cuMemFreeAsync");
  synchronize(other);
  check(cuStreamDestroy(other), "cuStreamDestroy");
}

// Pools release unused memory if memory is short.
void kept(CUmemoryPool pool, CUstream stream, std::size_t most) {
  cuuint64_t all = ~0ull;
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all), "cuMemPoolSetAttribute");
  check(cuMemFreeAsync(allocate(pool, most, stream), stream), "cuMemFreeAsync");
  synchronize(stream);
  expect(reserved(pool) >= most, "a pool keeps what it may");
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, most), "cuMemAlloc");
  check(cuMemFree(memory), "cuMemFree");
}

// Holds memory of a pool that could be shared with other processes.
void shareable(CUstream stream, double seconds) {
  CUmemoryPool pool = make_pool(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  CUdeviceptr memory = allocate(pool, kSize, stream);
  std::printf("pools: shareable %llu\n", static_cast<unsigned long long>(reserved(pool)));
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  synchronize(stream);
  std::printf("pools: freed\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Uses memory pools in every way.");
  unsigned rounds = 300;
  unsigned streams = 4;
  std::size_t largest = 16 << 20;
  std::uint64_t seed = 1;
  app.add_option("--rounds", rounds, "random allocations");
  app.add_option("--streams", streams, "streams that allocate").positive();
  app.add_option("--largest", largest, "bytes of the largest block");
  app.add_option("--seed", seed, "seed of sizes and order");
  std::size_t most = 0;
  app.add_option("--most", most, "bytes that the GPU cannot hold twice: who keeps them gives them up");
  double seconds = 0;
  app.add_option("--hold", seconds, "seconds to keep a shareable pool for");
  app.parse(argc, argv);

  start();
  Kernels kernels;
  CUmemoryPool standard = nullptr;
  check(cuDeviceGetDefaultMemPool(&standard, 0), "cuDeviceGetDefaultMemPool");
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUmemoryPool own = make_pool();
  expect(cuMemPoolDestroy(standard) != CUDA_SUCCESS, "the default pool stays");
  not_of_a_pool();
  for (CUmemoryPool pool : {standard, own}) {
    high_marks(pool, stream);
    numbers(pool, stream);
    mistakes(pool, stream);
    at_random(pool, rounds, streams, largest, seed);
    synchronize(stream);
    expect(used(pool) == 0, "nothing is left");
  }
  check(cuDeviceSetMemPool(0, own), "cuDeviceSetMemPool");
  if (most != 0) {
    freed_late(kernels, own, stream, most);
    kept(own, stream, most);
  }
  CUdeviceptr memory = 0;
  check(cuMemAllocAsync(&memory, kSize, stream), "cuMemAllocAsync");
  expect(used(own) >= kSize, "the current pool is allocated from");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  check(cuMemPoolDestroy(own), "cuMemPoolDestroy");
  destroyed_pool(kernels, stream);
  synchronize(stream);
  shareable(stream, seconds);
  std::printf("pools: all as it should be\n");
  return 0;
}
