// SPDX-License-Identifier: Apache-2.0
// Stream-ordered allocation: from the default pool and from a pool of the program's own, beside plain
// allocations.
#include <cstdio>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

void round(const Kernels& kernels, CUstream stream, CUmemoryPool pool, std::size_t bytes,
           std::uint64_t seed) {
  CUdeviceptr memory = 0;
  if (pool == nullptr)
    check(cuMemAllocAsync(&memory, bytes, stream), "cuMemAllocAsync");
  else
    check(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream), "cuMemAllocFromPoolAsync");
  Buffer buffer(kernels, memory, bytes, seed);
  buffer.fill(stream);
  buffer.step(0, stream);
  if (!buffer.verify(1, stream)) fail("stream-ordered memory is wrong");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Allocates in stream order and verifies.");
  unsigned rounds = 20;
  std::size_t bytes = 4 << 20;
  app.add_option("--rounds", rounds, "allocations from each pool").positive();
  app.add_option("--bytes", bytes, "bytes of one").positive();
  app.parse(argc, argv);

  start();
  Kernels kernels;
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  CUmemPoolProps properties = {};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemoryPool pool = nullptr;
  check(cuMemPoolCreate(&pool, &properties), "cuMemPoolCreate");
  Buffer plain(kernels, bytes, 99);
  for (unsigned i = 0; i < rounds; ++i) {
    round(kernels, stream, nullptr, bytes, i);
    round(kernels, stream, pool, bytes, i);
    plain.step(i, nullptr);
  }
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  if (!plain.verify(rounds, nullptr)) fail("plain memory is wrong");
  plain.free();
  check(cuMemPoolDestroy(pool), "cuMemPoolDestroy");
  check(cuStreamDestroy(stream), "cuStreamDestroy");
  std::printf("async_alloc: %u rounds verified\n", rounds);
  return 0;
}
