// SPDX-License-Identifier: Apache-2.0
// Several devices, and access of one device to another device's memory. Each hidden case runs in a separate
// process on a machine with two devices.
#include <unistd.h>

#include <cstring>

#include "tests/unit/simgpu/gpu.h"

using namespace sharedgpu::simgpu_test;

namespace {

bool passes_with_two(const std::string& name) { return passes_alone(name, {{"SIMGPU_DEVICES", "2"}}); }

CUcontext context_on(CUdevice device) {
  CUcontext context = nullptr;
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  REQUIRE(cuCtxCreate_v2(&context, 0, device) == CUDA_SUCCESS);
  return context;
}

std::size_t free_on(CUcontext context) {
  std::size_t free = 0;
  REQUIRE(cuCtxPushCurrent(context) == CUDA_SUCCESS);
  REQUIRE(cuMemGetInfo(&free, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
  return free;
}

CUdeviceptr map_on(CUdevice owner, std::initializer_list<CUdevice> allowed) {
  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, owner};
  REQUIRE(cuMemAddressReserve(&address, kGranule, 0, 0, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemCreate(&handle, kGranule, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(address, kGranule, 0, handle, 0) == CUDA_SUCCESS);
  for (CUdevice device : allowed) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    REQUIRE(cuMemSetAccess(address, kGranule, &access, 1) == CUDA_SUCCESS);
  }
  return address;
}

}  // namespace

TEST_CASE("each device has its own memory and name", "[.two-memory]") {
  CUcontext first = context_on(0);
  CUcontext second = context_on(1);
  int count = 0;
  CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 2);
  CUuuid one = {};
  CUuuid two = {};
  CHECK(cuDeviceGetUuid(&one, 0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetUuid(&two, 1) == CUDA_SUCCESS);
  CHECK(std::memcmp(&one, &two, sizeof one) != 0);
  CHECK(cuDeviceGetUuid(&two, 2) == CUDA_ERROR_INVALID_DEVICE);

  std::size_t before_first = free_on(first);
  std::size_t before_second = free_on(second);
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 8 * kMiB) == CUDA_SUCCESS);
  CHECK(free_on(first) == before_first);
  CHECK(free_on(second) == before_second - 8 * kMiB);
  int ordinal = -1;
  CHECK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, memory) == CUDA_SUCCESS);
  CHECK(ordinal == 1);
}

TEST_CASE("kernels reach a peer's memory once that is allowed", "[.two-peers]") {
  CUcontext first = context_on(0);
  CUdeviceptr memory = 0;
  REQUIRE(cuMemAlloc(&memory, 4096) == CUDA_SUCCESS);
  CUcontext second = context_on(1);
  int can = 0;
  CHECK(cuDeviceCanAccessPeer(&can, 1, 0) == CUDA_SUCCESS);
  CHECK(can == 1);
  CHECK(cuDeviceCanAccessPeer(&can, 1, 1) == CUDA_SUCCESS);
  CHECK(can == 0);
  CHECK(cuCtxDisablePeerAccess(first) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  CHECK(cuCtxEnablePeerAccess(second, 0) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(cuCtxEnablePeerAccess(first, 0) == CUDA_SUCCESS);
  CHECK(cuCtxEnablePeerAccess(first, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  CHECK(cuMemsetD32(memory, 7, 1024) == CUDA_SUCCESS);
  CHECK(word_at(memory) == 7);
  CHECK(cuCtxDisablePeerAccess(first) == CUDA_SUCCESS);
  CHECK(cuMemsetD32(memory, 8, 1024) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("copies between devices need no peer access to cuMemAlloc's memory", "[.two-copies]") {
  CUcontext first = context_on(0);
  CUdeviceptr from = 0;
  REQUIRE(cuMemAlloc(&from, 4096) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD32(from, 42, 1024) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CUcontext second = context_on(1);
  CUdeviceptr to = 0;
  REQUIRE(cuMemAlloc(&to, 4096) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoD(to, from, 4096) == CUDA_SUCCESS);
  CHECK(word_at(to) == 42);
  CHECK(cuMemcpyPeer(from, first, to, second, 4096) == CUDA_SUCCESS);
}

TEST_CASE("mapped memory is reached by the devices that cuMemSetAccess named", "[.two-mapped]") {
  CUcontext first = context_on(0);
  CUcontext second = context_on(1);
  CUdeviceptr own = map_on(1, {1});
  CUdeviceptr closed = map_on(0, {0});
  CUdeviceptr open = map_on(0, {0, 1});
  CHECK(cuMemcpyDtoD(own, closed, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuMemcpyPeer(own, second, closed, first, kGranule) == CUDA_SUCCESS);
  CHECK(cuMemcpyDtoD(own, open, kGranule) == CUDA_SUCCESS);
  CHECK(cuMemsetD8(open, 1, kGranule) == CUDA_SUCCESS);
  CHECK(cuMemsetD8(closed, 1, kGranule) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

TEST_CASE("a kernel on two devices begins on neither before both are ready, and ends on both",
          "[.two-together]") {
  Gpu first;
  CUcontext second = context_on(1);
  CUmodule module = nullptr;
  REQUIRE(cuModuleLoadData(&module, sharedgpu::programs::kKernelsPtx) == CUDA_SUCCESS);
  CUfunction add = nullptr;
  REQUIRE(cuModuleGetFunction(&add, module, "add_value") == CUDA_SUCCESS);
  const CUstream there = first.stream();
  CUdeviceptr far = first.words(1);
  REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
  const CUstream here = first.stream();
  CUdeviceptr near = first.words(1);
  std::uint64_t count = 1;
  std::uint32_t value = 4;
  void* near_arguments[] = {&near, &count, &value};
  void* far_arguments[] = {&far, &count, &value};
  CUDA_LAUNCH_PARAMS launches[] = {{first.kernel("add_value"), 1, 1, 1, 32, 1, 1, 0, here, near_arguments},
                                   {add, 1, 1, 1, 32, 1, 1, 0, there, far_arguments}};
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  auto launch = [&] { return cuLaunchCooperativeKernelMultiDevice(launches, 2, 0); };
#pragma GCC diagnostic pop
  {
    const Barrier barrier(there);
    REQUIRE(launch() == CUDA_SUCCESS);
    CHECK(cuStreamQuery(here) == CUDA_ERROR_NOT_READY);
    CHECK(word_at(near) == 0);
  }
  REQUIRE(cuStreamSynchronize(here) == CUDA_SUCCESS);
  CHECK(word_at(near) == 4);
  REQUIRE(cuCtxPushCurrent(second) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(there) == CUDA_SUCCESS);
  CHECK(word_at(far) == 4);
  REQUIRE(cuCtxPopCurrent(nullptr) == CUDA_SUCCESS);
  launches[1].hStream = nullptr;
  CHECK(launch() == CUDA_ERROR_INVALID_VALUE);
  launches[1] = launches[0];
  CHECK(launch() == CUDA_ERROR_INVALID_DEVICE);
}

TEST_CASE("the second of two devices alone is device 0", "[.second-alone]") {
  int count = 0;
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuDeviceGetCount(&count) == CUDA_SUCCESS);
  CHECK(count == 1);
  CHECK(cuDeviceGetUuid(nullptr, 0) == CUDA_ERROR_INVALID_VALUE);
}

TEST_CASE("two devices", "[simulated]") {
  CHECK(passes_with_two("[.two-memory]"));
  CHECK(passes_with_two("[.two-peers]"));
  CHECK(passes_with_two("[.two-copies]"));
  CHECK(passes_with_two("[.two-mapped]"));
  CHECK(passes_with_two("[.two-together]"));
  CHECK(passes_alone("[.second-alone]", {{"SIMGPU_DEVICES", "2"}, {"CUDA_VISIBLE_DEVICES", "1"}}));
  unlink((state_path() + ".1").c_str());
}
