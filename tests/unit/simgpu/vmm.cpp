// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {
namespace {

CUmemAllocationProp device_memory() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return properties;
}

}  // namespace

TEST_CASE("The granularity is 2 MiB and sizes obey it") {
  Gpu gpu;
  CUmemAllocationProp properties = device_memory();
  std::size_t granularity = 0;
  REQUIRE(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) ==
          CUDA_SUCCESS);
  CHECK(granularity == kGranule);
  CUmemGenericAllocationHandle handle = 0;
  CHECK(cuMemCreate(&handle, kGranule + 4096, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("Mapped memory works after all of create, map and set access") {
  Gpu gpu;
  Mapped memory(2 * kGranule);
  REQUIRE(cuMemsetD32(memory.address, 3, memory.size / 4) == CUDA_SUCCESS);
  CHECK(word_at(memory.address + memory.size - 4) == 3);
  memory.empty();
  CHECK(cuMemAddressFree(memory.address, memory.size) == CUDA_SUCCESS);
}

TEST_CASE("Bad mappings are refused") {
  Gpu gpu;
  Mapped memory(2 * kGranule);
  CUmemAllocationProp properties = device_memory();
  CUmemGenericAllocationHandle other = 0;
  REQUIRE(cuMemCreate(&other, 2 * kGranule, &properties, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(memory.address, memory.size, 0, other, 0) == CUDA_ERROR_INVALID_VALUE);  // mapped range
  CHECK(cuMemUnmap(memory.address, kGranule) == CUDA_ERROR_INVALID_VALUE);                // half of a mapping
  CHECK(cuMemAddressFree(memory.address, memory.size) == CUDA_ERROR_INVALID_VALUE);       // mapped range
  CUdeviceptr range = 0;
  REQUIRE(cuMemAddressReserve(&range, 2 * kGranule, 0, 0, 0) == CUDA_SUCCESS);
  CHECK(cuMemMap(range, kGranule, kGranule, other, 0) == CUDA_ERROR_NOT_SUPPORTED);  // mapping with an offset
                                                                                     // into the handle
  CHECK(cuMemMap(range, kGranule, 0, other, 0) == CUDA_ERROR_NOT_SUPPORTED);         // mapping a part of a
                                                                                     // handle
  CHECK(cuMemUnmap(range, kGranule) == CUDA_SUCCESS);                                // nothing is mapped
  REQUIRE(cuMemRelease(other) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(range, 2 * kGranule) == CUDA_SUCCESS);
  memory.empty();
  REQUIRE(cuMemAddressFree(memory.address, memory.size) == CUDA_SUCCESS);
}

TEST_CASE("Released memory is free at once, and its contents are gone") {
  Gpu gpu;
  Mapped memory(8 * kGranule);
  std::size_t with = 0, without = 0;
  REQUIRE(cuMemsetD32(memory.address, 0x55555555, memory.size / 4) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&with, nullptr) == CUDA_SUCCESS);
  memory.empty();
  REQUIRE(cuMemGetInfo(&without, nullptr) == CUDA_SUCCESS);
  CHECK(without - with == memory.size);
  REQUIRE(memory.fill() == CUDA_SUCCESS);
  CHECK(word_at(memory.address) == 0);
  CHECK(word_at(memory.address + memory.size - 4) == 0);
  memory.empty();
}

TEST_CASE("A handle that is mapped keeps its memory after its release") {
  Gpu gpu;
  Mapped memory(kGranule);
  REQUIRE(cuMemsetD32(memory.address, 77, 4) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(memory.handle) == CUDA_SUCCESS);
  CHECK(word_at(memory.address) == 77);
  CHECK(cuMemUnmap(memory.address, memory.size) == CUDA_SUCCESS);
}

TEST_CASE("One handle can be mapped at two addresses") {
  Gpu gpu;
  Mapped memory(kGranule);
  CUdeviceptr alias = 0;
  REQUIRE(cuMemAddressReserve(&alias, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(alias, kGranule, 0, memory.handle, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(cuMemSetAccess(alias, kGranule, &access, 1) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(memory.address, 21, 1) == CUDA_SUCCESS);
  CHECK(word_at(alias) == 21);
  REQUIRE(cuMemUnmap(alias, kGranule) == CUDA_SUCCESS);
  memory.empty();
}

TEST_CASE("A kernel works on memory that is not resident", "[.not-resident]") {
  Gpu outer;
  CUdeviceptr bystander = outer.words(1);
  {
    Gpu gpu;
    Mapped memory(kGranule);
    memory.empty();
    REQUIRE(gpu.add(memory.address, 4, 1, nullptr) == CUDA_SUCCESS);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
    // The error is sticky.
    CUdeviceptr more = 0;
    CHECK(cuMemAlloc(&more, 8) == CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK(cuStreamSynchronize(nullptr) == CUDA_ERROR_ILLEGAL_ADDRESS);
  }
  // The process loses its other contexts, too, and can create no new context.
  std::uint32_t word = 0;
  CHECK(cuMemcpyDtoH(&word, bystander, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
  CUcontext context = nullptr;
  CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
TEST_CASE("A kernel on memory that is not resident is the end of the process's contexts") {
  CHECK(passes_alone("[.not-resident]", {}));
}

TEST_CASE("A kernel works on memory without access", "[.no-access]") {
  Gpu gpu;
  CUdeviceptr range = 0;
  CUmemAllocationProp properties = device_memory();
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(cuMemAddressReserve(&range, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(range, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(gpu.add(range, 4, 1, nullptr) == CUDA_SUCCESS);
  CHECK(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("A kernel on memory without access fails, too") { CHECK(passes_alone("[.no-access]", {})); }

TEST_CASE("Memory is unmapped under a kernel", "[.unmapped-under]") {
  Gpu gpu;
  Mapped memory(16 * kGranule);
  CUstream stream = gpu.stream();
  std::atomic<bool> started{false};
  REQUIRE(cuLaunchHostFunc(
              stream,
              [](void* flag) {
                static_cast<std::atomic<bool>*>(flag)->store(true);
                static_cast<std::atomic<bool>*>(flag)->notify_all();
              },
              &started) == CUDA_SUCCESS);
  CUresult result = CUDA_SUCCESS;
  // So many kernels are submitted that the memory is unmapped before the last kernel ends.
  for (int i = 0; i < 2000; ++i) REQUIRE(gpu.add(memory.address, memory.size / 4, 1, stream) == CUDA_SUCCESS);
  started.wait(false);
  REQUIRE(cuMemUnmap(memory.address, memory.size) == CUDA_SUCCESS);
  result = cuStreamSynchronize(stream);
  CHECK(result == CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST_CASE("Unmapping does not wait for a kernel, which then faults", "[simulated]") {
  CHECK(passes_alone("[.unmapped-under]", {}));
}

TEST_CASE("A copy on memory that is not resident is an error") {
  Gpu gpu;
  Mapped memory(kGranule);
  memory.empty();
  std::uint32_t word = 0;
  CHECK(cuMemcpyDtoH(&word, memory.address, 4) != CUDA_SUCCESS);
}

TEST_CASE("A graph replays on memory that went and came back to its address") {
  Gpu gpu;
  Mapped memory(kGranule);
  CUstream stream = gpu.stream();
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  REQUIRE(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  REQUIRE(gpu.add(memory.address, 16, 5, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  REQUIRE(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(memory.address, 0, 16) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  std::uint32_t kept = word_at(memory.address);
  memory.empty();
  REQUIRE(memory.fill() == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(memory.address, &kept, 4) == CUDA_SUCCESS);
  REQUIRE(cuGraphLaunch(exec, stream) == CUDA_SUCCESS);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(word_at(memory.address) == 10);
  memory.empty();
}

TEST_CASE("An imported descriptor has the same memory, and outlives the handle") {
  Gpu gpu;
  CUmemAllocationProp properties = device_memory();
  CUmemGenericAllocationHandle plain = 0;
  REQUIRE(cuMemCreate(&plain, kGranule, &properties, 0) == CUDA_SUCCESS);
  int descriptor = -1;
  CHECK(cuMemExportToShareableHandle(&descriptor, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
        CUDA_ERROR_INVALID_VALUE);  // the memory was not created for export
  REQUIRE(cuMemRelease(plain) == CUDA_SUCCESS);

  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle = 0;
  REQUIRE(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
          CUDA_SUCCESS);
  CUmemGenericAllocationHandle imported = 0;
  auto* os_handle = reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor));
  REQUIRE(cuMemImportFromShareableHandle(&imported, os_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
          CUDA_SUCCESS);
  REQUIRE(close(descriptor) == 0);

  CUdeviceptr range = 0;
  REQUIRE(cuMemAddressReserve(&range, 2 * kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(range, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(range + kGranule, kGranule, 0, imported, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(cuMemSetAccess(range, 2 * kGranule, &access, 1) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(range, 7, kGranule / 4) == CUDA_SUCCESS);
  CHECK(word_at(range + kGranule) == 7);

  CUipcMemHandle legacy = {};
  CHECK(cuIpcGetMemHandle(&legacy, range) == CUDA_ERROR_INVALID_VALUE);  // no IPC handle for mapped memory
  REQUIRE(cuMemRelease(handle) == CUDA_SUCCESS);
  REQUIRE(cuMemRelease(imported) == CUDA_SUCCESS);
  REQUIRE(cuMemUnmap(range, kGranule) == CUDA_SUCCESS);
  CHECK(word_at(range + kGranule) == 7);
  REQUIRE(cuMemUnmap(range + kGranule, kGranule) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(range, 2 * kGranule) == CUDA_SUCCESS);
}

// The results are those that cuda.h of CUDA 13.0 documents for cuMemCreate and cuMemSetAccess.
TEST_CASE("Memory of the host can be made and mapped, and takes no room of the device", "[simulated]") {
  Gpu gpu;
  CUmemAllocationProp properties = device_memory();
  CUmemGenericAllocationHandle handle = 0;
  properties.location.type = kOnHostNumaCurrent;
  CHECK(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
  std::size_t before = 0;
  std::size_t after = 0;
  std::size_t total = 0;
  REQUIRE(cuMemGetInfo(&before, &total) == CUDA_SUCCESS);
  for (const CUmemLocationType where : {kOnHost, kOnHostNuma}) {
    properties.location.type = where;
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CHECK(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_ERROR_INVALID_VALUE);
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    REQUIRE(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_SUCCESS);
    CUdeviceptr range = 0;
    REQUIRE(cuMemAddressReserve(&range, kGranule, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemMap(range, kGranule, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(handle) == CUDA_SUCCESS);
    CHECK(cuMemsetD32(range, 7, kGranule / 4) == CUDA_ERROR_INVALID_VALUE);  // no access yet
    CUmemAccessDesc access[2] = {};
    access[0].location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access[1].location = properties.location;
    access[0].flags = access[1].flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    REQUIRE(cuMemSetAccess(range, kGranule, access, 2) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD32(range, 7, kGranule / 4) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    CHECK(*reinterpret_cast<std::uint32_t*>(range) == 7);  // NOLINT(performance-no-int-to-ptr)
    CHECK(word_at(range + kGranule - 4) == 7);
    REQUIRE(cuMemGetInfo(&after, &total) == CUDA_SUCCESS);
    CHECK(after == before);
    REQUIRE(cuMemUnmap(range, kGranule) == CUDA_SUCCESS);
    REQUIRE(cuMemAddressFree(range, kGranule) == CUDA_SUCCESS);

    const Mapped device(kGranule);  // the host cannot access it
    CHECK(cuMemSetAccess(device.address, kGranule, &access[1], 1) == CUDA_ERROR_INVALID_VALUE);
    device.empty();
    REQUIRE(cuMemAddressFree(device.address, kGranule) == CUDA_SUCCESS);
  }
}

TEST_CASE("Memory changes between device and host at one address") {
  Gpu gpu;
  const Mapped memory(2 * kGranule);
  const Mapped away(2 * kGranule, kOnHostNuma);  // the away memory keeps its separate host address
  REQUIRE(cuMemsetD32(memory.address, 5, memory.size / 4) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoD(away.address, memory.address, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  std::size_t before = 0, after = 0;
  REQUIRE(cuMemGetInfo(&before, nullptr) == CUDA_SUCCESS);
  memory.empty();
  REQUIRE(cuMemMap(memory.address, memory.size, 0, away.handle, 0) == CUDA_SUCCESS);
  REQUIRE(memory.open() == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&after, nullptr) == CUDA_SUCCESS);
  CHECK(after - before == memory.size);
  REQUIRE(gpu.add(memory.address, memory.size / 4, 2, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(word_at(memory.address + memory.size - 4) == 7);
  CHECK(word_at(away.address + memory.size - 4) == 7);
  REQUIRE(cuMemsetD32(away.address, 1, 1) == CUDA_SUCCESS);
  CHECK(word_at(memory.address) == 1);

  CUmemAllocationProp properties = {};
  REQUIRE(cuMemGetAllocationPropertiesFromHandle(&properties, away.handle) == CUDA_SUCCESS);
  CHECK(properties.location.type == kOnHostNuma);
  std::size_t granularity = 0;
  REQUIRE(cuMemGetAllocationGranularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
          CUDA_SUCCESS);
  CHECK(granularity == kGranule);
  REQUIRE(cuMemUnmap(memory.address, memory.size) == CUDA_SUCCESS);
  REQUIRE(cuMemAddressFree(memory.address, memory.size) == CUDA_SUCCESS);
  CHECK(word_at(away.address + memory.size - 4) == 7);
  away.empty();
  REQUIRE(cuMemAddressFree(away.address, away.size) == CUDA_SUCCESS);
}

// The results follow from the text of cuda.h of CUDA 13.0.
TEST_CASE("Pointers to memory of the host have attributes", "[simulated]") {
  Gpu gpu;
  const Mapped away(kGranule, kOnHostNuma);
  unsigned type = 0;
  REQUIRE(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, away.address + 5) == CUDA_SUCCESS);
  CHECK(type == CU_MEMORYTYPE_HOST);
  CUdeviceptr seen = 0;
  CHECK(cuPointerGetAttribute(&seen, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, away.address + 5) == CUDA_SUCCESS);
  CHECK(seen == away.address + 5);
  void* host = nullptr;
  CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, away.address) ==
        CUDA_ERROR_INVALID_VALUE);  // the host has no access to the memory
  CUmemAccessDesc access = {};
  access.location.type = kOnHostNuma;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(cuMemSetAccess(away.address, away.size, &access, 1) == CUDA_SUCCESS);
  CHECK(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, away.address) == CUDA_SUCCESS);
  CHECK(reinterpret_cast<CUdeviceptr>(host) == away.address);
  away.empty();
  REQUIRE(cuMemAddressFree(away.address, away.size) == CUDA_SUCCESS);
}

}  // namespace sharedgpu::simgpu_test
