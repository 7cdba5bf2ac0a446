// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/simgpu/gpu.h"

// The tests use the first version of cuMemPrefetchAsync, which every driver has. Newer headers define this
// name as a macro for the second version.
#undef cuMemPrefetchAsync
extern "C" CUresult CUDAAPI cuMemPrefetchAsync(CUdeviceptr address, std::size_t size, CUdevice to,
                                               CUstream stream);

namespace sharedgpu::simgpu_test {
namespace {

constexpr CUdevice kHost = -1;

CUdeviceptr managed(std::size_t size) {
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAllocManaged(&memory, size, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS);
  return memory;
}

std::uint32_t* words_at(CUdeviceptr memory) { return reinterpret_cast<std::uint32_t*>(memory); }  // NOLINT

std::size_t used() {
  std::size_t free = 0, total = 0;
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  return total - free;
}

}  // namespace

TEST_CASE("Managed memory is accessible to the program and to the GPU") {
  Gpu gpu;
  constexpr std::size_t kWords = 1 << 20;
  const CUdeviceptr memory = managed(kWords * 4);
  std::uint32_t* const words = words_at(memory);
  for (std::size_t i = 0; i < kWords; ++i) words[i] = static_cast<std::uint32_t>(i);
  for (CUdevice to : {0, kHost, 0, kHost}) {
    REQUIRE(gpu.add(memory, kWords, 1, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuMemPrefetchAsync(memory, kWords * 4, to, nullptr) == CUDA_SUCCESS);
  }
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  bool right = true;
  for (std::size_t i = 0; i < kWords; ++i) right = right && words[i] == i + 4;
  CHECK(right);

  unsigned is_managed = 0, type = 0;
  CHECK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, memory) == CUDA_SUCCESS);
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory) == CUDA_SUCCESS);
  CHECK(is_managed == 1);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  CUipcMemHandle handle;
  CHECK(cuIpcGetMemHandle(&handle, memory) != CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(cuMemPrefetchAsync(memory, kWords * 4, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("Managed memory takes room where its pages are", "[simulated]") {
  Gpu gpu;
  const std::size_t before = used();
  const CUdeviceptr memory = managed(64 * kMiB);
  CHECK(used() == before);
  REQUIRE(cuMemsetD32(memory, 5, 8 * kMiB) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(used() - before == 32 * kMiB);
  REQUIRE(cuMemPrefetchAsync(memory, 64 * kMiB, 0, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(used() - before == 64 * kMiB);
  REQUIRE(cuMemPrefetchAsync(memory + 16 * kMiB, 16 * kMiB, kHost, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(used() - before == 48 * kMiB);
  CHECK(words_at(memory)[5 * kMiB] == 5);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(used() == before);
}

TEST_CASE("More managed memory than the device has moves in and out", "[simulated]") {
  Gpu gpu;
  std::size_t total = 0;
  REQUIRE(cuMemGetInfo(nullptr, &total) == CUDA_SUCCESS);
  const std::size_t size = total / 4 * 3 / kGranule * kGranule;
  const CUdeviceptr blocks[] = {managed(size), managed(size)};
  for (std::uint32_t round = 0; round < 3; ++round)
    for (CUdeviceptr block : blocks) {
      REQUIRE(gpu.add(block, size / 4, 1, nullptr) == CUDA_SUCCESS);
      REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
      CHECK(used() <= total);
    }
  for (CUdeviceptr block : blocks) {
    CHECK(words_at(block)[0] == 3);
    CHECK(words_at(block)[size / 4 - 1] == 3);
  }
  // Memory that cannot be paged displaces managed memory.
  CUdeviceptr plain = 0;
  REQUIRE(cuMemAlloc(&plain, size) == CUDA_SUCCESS);
  CHECK(used() <= total);
  CHECK(cuMemFree(plain) == CUDA_SUCCESS);
  for (CUdeviceptr block : blocks) CHECK(cuMemFree(block) == CUDA_SUCCESS);
}

TEST_CASE("Managed memory goes with its context", "[simulated]") {
  const std::size_t before = [] {
    Gpu gpu;
    return used();
  }();
  {
    Gpu gpu;
    REQUIRE(cuMemPrefetchAsync(managed(32 * kMiB), 32 * kMiB, 0, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(used() - before == 32 * kMiB);
  }
  Gpu gpu;
  CHECK(used() == before);
}

}  // namespace sharedgpu::simgpu_test
