// SPDX-License-Identifier: Apache-2.0
#include <numeric>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {

TEST_CASE("Allocations keep the data that is copied into them") {
  Gpu gpu;
  std::vector<std::uint32_t> in(1 << 20), out(1 << 20);
  std::iota(in.begin(), in.end(), 1u);
  CUdeviceptr one = 0, two = 0;
  REQUIRE(cuMemAlloc(&one, in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&two, in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(one, in.data(), in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoD(two, one, in.size() * 4) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH(out.data(), two, in.size() * 4) == CUDA_SUCCESS);
  CHECK(in == out);
  CHECK(cuMemFree(one) == CUDA_SUCCESS);
  CHECK(cuMemFree(two) == CUDA_SUCCESS);
}

TEST_CASE("Bad allocations and frees are refused") {
  Gpu gpu;
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 0) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemAlloc(nullptr, 8) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(0) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc(&memory, 4 * kMiB) == CUDA_SUCCESS);
  CHECK(memory % 512 == 0);
  CHECK(cuMemFree(memory + 512) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  CHECK(cuMemFree(memory) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("The device has a limited amount of memory") {
  Gpu gpu;
  std::size_t free = 0, total = 0, now = 0;
  REQUIRE(cuMemGetInfo(&free, &total) == CUDA_SUCCESS);
  CUdeviceptr memory = 0, more = 0;
  CHECK(cuMemAlloc(&memory, total + kGranule) == CUDA_ERROR_OUT_OF_MEMORY);
  REQUIRE(cuMemAlloc(&memory, 64 * kMiB) == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
  CHECK(free - now == 64 * kMiB);
  CHECK(cuMemAlloc(&more, free) == CUDA_ERROR_OUT_OF_MEMORY);
  // The error CUDA_ERROR_OUT_OF_MEMORY is not sticky.
  CHECK(cuMemFree(memory) == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&now, nullptr) == CUDA_SUCCESS);
  CHECK(now == free);
}

TEST_CASE("Small allocations share physical memory and do not overlap") {
  Gpu gpu;
  std::size_t before = 0, after = 0;
  std::vector<CUdeviceptr> blocks(64);
  CUdeviceptr first = gpu.words(1);
  REQUIRE(cuMemGetInfo(&before, nullptr) == CUDA_SUCCESS);
  for (CUdeviceptr& block : blocks) REQUIRE(cuMemAlloc(&block, 1000) == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&after, nullptr) == CUDA_SUCCESS);
  CHECK(before == after);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    REQUIRE(cuMemsetD8(blocks[i], static_cast<unsigned char>(i), 1000) == CUDA_SUCCESS);
  bool right = true;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<unsigned char> out(1000);
    REQUIRE(cuMemcpyDtoH(out.data(), blocks[i], 1000) == CUDA_SUCCESS);
    for (unsigned char byte : out) right = right && byte == i;
  }
  CHECK(right);
  CHECK(word_at(first) == 0);
}

TEST_CASE("Pointers have attributes") {
  Gpu gpu;
  CUdeviceptr memory = 0, base = 0;
  std::size_t size = 0;
  REQUIRE(cuMemAlloc(&memory, 3 * kMiB) == CUDA_SUCCESS);
  REQUIRE(cuMemGetAddressRange(&base, &size, memory + kMiB) == CUDA_SUCCESS);
  CHECK(base == memory);
  CHECK(size == 3 * kMiB);
  CHECK(cuMemGetAddressRange(&base, &size, 0x1000) != CUDA_SUCCESS);

  unsigned type = 0;
  REQUIRE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory + 5) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_DEVICE);
  void* host = nullptr;
  REQUIRE(cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS);
  auto host_address = reinterpret_cast<CUdeviceptr>(host);
  REQUIRE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host_address) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  int local = 0;
  auto local_address = reinterpret_cast<CUdeviceptr>(&local);
  CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, local_address) ==
        CUDA_ERROR_INVALID_VALUE);
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
  void* results[] = {&type};
  CHECK(cuPointerGetAttributes(1, attributes, results, local_address) == CUDA_SUCCESS);
  CHECK(type == 0);
  CHECK(cuMemFreeHost(host) == CUDA_SUCCESS);
}

TEST_CASE("Host memory is registered once") {
  Gpu gpu;
  std::vector<char> host(8 * 4096);
  auto* page = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(host.data()) + 4095) / 4096 * 4096);
  REQUIRE(cuMemHostRegister(page, 2 * 4096, 0) == CUDA_SUCCESS);
  CHECK(cuMemHostRegister(page, 4096, 0) == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  CHECK(cuMemHostUnregister(page) == CUDA_SUCCESS);
  CHECK(cuMemHostUnregister(page) == CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

TEST_CASE("A kernel reaches pinned host memory") {
  Gpu gpu;
  void* host = nullptr;
  REQUIRE(cuMemHostAlloc(&host, 4096, CU_MEMHOSTALLOC_DEVICEMAP) == CUDA_SUCCESS);
  auto* words = static_cast<std::uint32_t*>(host);
  words[7] = 1;
  CUdeviceptr device = 0;
  REQUIRE(cuMemHostGetDevicePointer(&device, host, 0) == CUDA_SUCCESS);
  REQUIRE(gpu.add(device, 16, 41, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(words[7] == 42);
  CHECK(cuMemFreeHost(host) == CUDA_SUCCESS);
}

TEST_CASE("Pitched memory and two-dimensional copies") {
  Gpu gpu;
  CUdeviceptr memory = 0;
  std::size_t pitch = 0;
  REQUIRE(cuMemAllocPitch(&memory, &pitch, 100, 10, 4) == CUDA_SUCCESS);
  CHECK(pitch >= 100);
  CHECK(pitch % 256 == 0);
  REQUIRE(cuMemsetD2D8(memory, pitch, 0, pitch, 10) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD2D32(memory, pitch, 0x01020304, 25, 10) == CUDA_SUCCESS);
  std::vector<unsigned char> out(10 * 104, 0xff);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcPitch = pitch;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = out.data();
  copy.dstPitch = 104;
  copy.WidthInBytes = 102;
  copy.Height = 10;
  REQUIRE(cuMemcpy2D(&copy) == CUDA_SUCCESS);
  for (std::size_t row : {std::size_t{0}, std::size_t{9}}) {
    CHECK(out[row * 104] == 4);
    CHECK(out[row * 104 + 99] == 1);
    CHECK(out[row * 104 + 100] == 0);
    CHECK(out[row * 104 + 102] == 0xff);
  }
}

TEST_CASE("A copy from pageable memory may be followed by a change of its source") {
  Gpu gpu;
  CUdeviceptr memory = gpu.words(1);
  CUstream stream = gpu.stream();
  std::uint32_t source = 5;
  {
    Barrier barrier(stream);
    REQUIRE(cuMemcpyHtoDAsync(memory, &source, 4, stream) == CUDA_SUCCESS);
    source = 6;
  }
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 5);
}

TEST_CASE("Stream-ordered allocations come from pools") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUmemoryPool pool = nullptr;
  REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAllocAsync(&memory, 4 * kMiB, stream) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32Async(memory, 9, 10, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory + 36) == 9);
  cuuint64_t used = 0;
  REQUIRE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
  CHECK(used >= 4 * kMiB);
  REQUIRE(cuMemFreeAsync(memory, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  REQUIRE(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used) == CUDA_SUCCESS);
  CHECK(used == 0);
}

// The expected results were not compared with a real driver.
TEST_CASE("A pool keeps as much as its threshold says, and gives it up when it is trimmed", "[simulated]") {
  Gpu gpu;
  CUstream stream = gpu.stream();
  CUmemoryPool pool = nullptr;
  REQUIRE(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
  const auto attribute = [=](CUmemPool_attribute name) {
    cuuint64_t value = 0;
    CHECK(cuMemPoolGetAttribute(pool, name, &value) == CUDA_SUCCESS);
    return value;
  };
  const auto set = [=](CUmemPool_attribute name, cuuint64_t value) {
    CHECK(cuMemPoolSetAttribute(pool, name, &value) == CUDA_SUCCESS);
  };
  set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 8 * kMiB);
  CUdeviceptr memory[3] = {};
  for (CUdeviceptr& each : memory) REQUIRE(cuMemAllocAsync(&each, 4 * kMiB, stream) == CUDA_SUCCESS);
  CUmemoryPool found = nullptr;
  CHECK(cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, memory[1] + 1) == CUDA_SUCCESS);
  CHECK(found == pool);
  for (CUdeviceptr each : memory) REQUIRE(cuMemFreeAsync(each, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  CHECK(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 8 * kMiB);
  CHECK(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 12 * kMiB);
  set(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, 0);
  set(CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
  CHECK(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 8 * kMiB);
  CHECK(attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
  REQUIRE(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
  CHECK(attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
}

}  // namespace sharedgpu::simgpu_test
