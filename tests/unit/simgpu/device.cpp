// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <thread>

#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {

TEST_CASE("Each error has its name") {
  const char* text = nullptr;
  REQUIRE(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "CUDA_ERROR_OUT_OF_MEMORY");
  REQUIRE(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text) == CUDA_SUCCESS);
  CHECK(std::string(text) == "out of memory");
  CHECK(cuGetErrorName(static_cast<CUresult>(998), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
}

TEST_CASE("The device states its attributes") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CHECK(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
  int value = 0;
  REQUIRE(cuDeviceGetCount(&value) == CUDA_SUCCESS);
  CHECK(value == 1);
  CUdevice device = -1;
  REQUIRE(cuDeviceGet(&device, 0) == CUDA_SUCCESS);
  CHECK(cuDeviceGet(&device, 1) == CUDA_ERROR_INVALID_DEVICE);
  REQUIRE(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0) ==
          CUDA_SUCCESS);
  CHECK(value == 1);
  CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MAX, 0) == CUDA_ERROR_INVALID_VALUE);
  CUuuid one = {}, two = {};
  REQUIRE(cuDeviceGetUuid(&one, 0) == CUDA_SUCCESS);
  REQUIRE(cuDeviceGetUuid(&two, 0) == CUDA_SUCCESS);
  CHECK(std::memcmp(&one, &two, sizeof one) == 0);
}

TEST_CASE("The simulated device says so and has the memory it was given", "[simulated]") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  char name[64];
  REQUIRE(cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS);
  CHECK(std::string(name) == "Simulated GPU");
  std::size_t total = 0;
  REQUIRE(cuDeviceTotalMem(&total, 0) == CUDA_SUCCESS);
  CHECK(total == 256 * kMiB);
}

TEST_CASE("Before cuInit nothing works", "[.before-init]") {
  int count = 0;
  CHECK(cuDeviceGetCount(&count) == CUDA_ERROR_NOT_INITIALIZED);
  CUdeviceptr memory = 0;
  CHECK(cuMemAlloc(&memory, 8) == CUDA_ERROR_NOT_INITIALIZED);
}
TEST_CASE("A process that has not called cuInit gets an error that says so") {
  CHECK(passes_alone("[.before-init]", {}));
}

TEST_CASE("The device is hidden", "[.hidden-device]") { CHECK(cuInit(0) == CUDA_ERROR_NO_DEVICE); }
TEST_CASE("CUDA_VISIBLE_DEVICES hides the device") {
  CHECK(passes_alone("[.hidden-device]", {{"CUDA_VISIBLE_DEVICES", ""}}));
  CHECK(passes_alone("[.hidden-device]", {{"CUDA_VISIBLE_DEVICES", "-1"}}));
  CHECK(passes_alone("[.before-init]", {{"CUDA_VISIBLE_DEVICES", "0"}}));
}

TEST_CASE("Calls that need a context fail without one") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  std::thread([] {
    CUdeviceptr memory = 0;
    CHECK(cuMemAlloc(&memory, 8) == CUDA_ERROR_INVALID_CONTEXT);
    CHECK(cuCtxSynchronize() == CUDA_ERROR_INVALID_CONTEXT);
    CUcontext context = reinterpret_cast<CUcontext>(8);
    CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
    CHECK(context == nullptr);
  }).join();
}

TEST_CASE("Contexts form a stack of each thread") {
  Gpu one;
  CUcontext current = nullptr;
  {
    Gpu two;
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == two.context);
    CUcontext popped = nullptr;
    REQUIRE(cuCtxPopCurrent(&popped) == CUDA_SUCCESS);
    CHECK(popped == two.context);
    REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
    CHECK(current == one.context);
    REQUIRE(cuCtxPushCurrent(two.context) == CUDA_SUCCESS);
  }
  REQUIRE(cuCtxGetCurrent(&current) == CUDA_SUCCESS);
  CHECK(current == one.context);
}

TEST_CASE("The primary context lives as long as someone retains it") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext one = nullptr, two = nullptr;
  unsigned flags = 0;
  int active = 0;
  REQUIRE(cuDevicePrimaryCtxRetain(&one, 0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRetain(&two, 0) == CUDA_SUCCESS);
  CHECK(one == two);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_ERROR_INVALID_CONTEXT);
}

TEST_CASE("Resetting the primary context does not release it") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  unsigned flags = 0;
  int active = 1;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxReset(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  REQUIRE(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 0);
}

TEST_CASE("The primary context is not destroyed as others are") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CUcontext primary = nullptr;
  unsigned flags = 0;
  int active = 0;
  REQUIRE(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy(primary) == CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(cuDevicePrimaryCtxGetState(0, &flags, &active) == CUDA_SUCCESS);
  CHECK(active == 1);
  CHECK(cuDevicePrimaryCtxRelease(0) == CUDA_SUCCESS);
}

TEST_CASE("A context takes device memory, and destroying it gives its allocations back", "[simulated]") {
  Gpu outer;
  std::size_t before = 0, with = 0, after = 0;
  REQUIRE(cuMemGetInfo(&before, nullptr) == CUDA_SUCCESS);
  {
    Gpu inner;
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc(&memory, 16 * kMiB) == CUDA_SUCCESS);
    REQUIRE(cuMemGetInfo(&with, nullptr) == CUDA_SUCCESS);
  }
  REQUIRE(cuMemGetInfo(&after, nullptr) == CUDA_SUCCESS);
  CHECK(before - with == 20 * kMiB);
  CHECK(after == before);
}

#if CUDA_VERSION >= 12000
TEST_CASE("cuGetProcAddress finds versions and variants") {
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  void* found = nullptr;
  CUdriverProcAddressQueryResult status = {};
  REQUIRE(cuGetProcAddress("cuMemAlloc", &found, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(found == reinterpret_cast<void*>(&cuMemAlloc_v2));
  CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);

  void* plain = nullptr;
  void* per_thread = nullptr;
  REQUIRE(cuGetProcAddress("cuLaunchKernel", &plain, 12000, 0, nullptr) == CUDA_SUCCESS);
  REQUIRE(cuGetProcAddress("cuLaunchKernel", &per_thread, 12000, 2, nullptr) == CUDA_SUCCESS);
  CHECK(plain != per_thread);

  // If a function is missing, cuGetProcAddress succeeds and returns the reason in the status.
  CHECK(cuGetProcAddress("cuNoSuchThing", &found, 12000, 0, &status) == CUDA_SUCCESS);
  CHECK(found == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  CHECK(cuGetProcAddress("cuMemAllocAsync", &found, 10000, 0, &status) == CUDA_SUCCESS);
  CHECK(found == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(cuGetProcAddress("cuMemAlloc_v2", &found, 12000, 0, nullptr) == CUDA_SUCCESS);
  CHECK(found == nullptr);
  // Per-thread default streams came with CUDA 7.
  CHECK(cuGetProcAddress("cuLaunchKernel", &found, 4000, 2, &status) == CUDA_SUCCESS);
  CHECK(found == nullptr);
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  REQUIRE(cuGetProcAddress("cuMemAlloc", &found, 12000, 2, &status) == CUDA_SUCCESS);
  CHECK(found == reinterpret_cast<void*>(&cuMemAlloc_v2));
}
#endif

}  // namespace sharedgpu::simgpu_test
