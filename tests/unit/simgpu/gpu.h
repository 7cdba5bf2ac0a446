// SPDX-License-Identifier: Apache-2.0
// Shared parts of the tests of the simulated driver. The tests in simgpu_api_test use only the public API,
// and also pass on a real GPU, except the cases with the tag [simulated].
#pragma once

#include <cuda.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/programs/kernels_ptx.h"

// This function exists in every CUDA since 4.0, but cuda.h may declare only a newer version.
extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext* context, unsigned int flags, CUdevice device);

namespace sharedgpu::simgpu_test {

inline constexpr std::size_t kMiB = std::size_t{1} << 20;
inline constexpr std::size_t kGranule = 2 * kMiB;

// A new context with the test kernels. The context is current while the object exists.
class Gpu {
 public:
  Gpu() {
    REQUIRE(cuInit(0) == CUDA_SUCCESS);
    REQUIRE(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS);
    REQUIRE(cuModuleLoadData(&module, programs::kKernelsPtx) == CUDA_SUCCESS);
    // A real driver loads a kernel at the kernel's first launch. Before it loads the kernel, the driver waits
    // for all other work.
    REQUIRE(add(0, 0, 0, nullptr) == CUDA_SUCCESS);
    REQUIRE(spin(0, nullptr) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  }
  ~Gpu() { cuCtxDestroy(context); }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  CUfunction kernel(const char* name) const {
    CUfunction function = nullptr;
    REQUIRE(cuModuleGetFunction(&function, module, name) == CUDA_SUCCESS);
    return function;
  }
  CUresult launch(const char* name, CUstream stream, std::initializer_list<const void*> arguments) const {
    std::vector<void*> parameters;
    for (const void* argument : arguments) parameters.push_back(const_cast<void*>(argument));
    return cuLaunchKernel(kernel(name), 8, 1, 1, 128, 1, 1, 0, stream, parameters.data(), nullptr);
  }
  CUresult add(CUdeviceptr data, std::uint64_t count, std::uint32_t value, CUstream stream) const {
    return launch("add_value", stream, {&data, &count, &value});
  }
  CUresult spin(std::uint64_t milliseconds, CUstream stream) const {
    std::uint64_t nanoseconds = milliseconds * 1000000;
    return launch("spin", stream, {&nanoseconds});
  }
  CUstream stream(unsigned flags = CU_STREAM_NON_BLOCKING) const {
    CUstream made = nullptr;
    REQUIRE(cuStreamCreate(&made, flags) == CUDA_SUCCESS);
    return made;
  }
  // `count` words, all zero.
  CUdeviceptr words(std::size_t count) const {
    CUdeviceptr memory = 0;
    REQUIRE(cuMemAlloc(&memory, count * 4) == CUDA_SUCCESS);
    REQUIRE(cuMemsetD32(memory, 0, count) == CUDA_SUCCESS);
    REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
    return memory;
  }

  CUcontext context = nullptr;
  CUmodule module = nullptr;
};

inline std::uint32_t word_at(CUdeviceptr memory) {
  std::uint32_t value = 0xdeadbeef;
  REQUIRE(cuMemcpyDtoH(&value, memory, 4) == CUDA_SUCCESS);
  return value;
}

// Blocks a stream by a host function that waits until the barrier is opened. The function may outlive the
// barrier.
class Barrier {
 public:
  explicit Barrier(CUstream stream) {
    auto wait = [](void* data) {
      std::unique_ptr<Open> open(static_cast<Open*>(data));
      (*open)->wait(false);
    };
    REQUIRE(cuLaunchHostFunc(stream, wait, new Open(open_)) == CUDA_SUCCESS);
  }
  ~Barrier() { open(); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  void open() {
    *open_ = true;
    open_->notify_all();
  }

 private:
  using Open = std::shared_ptr<std::atomic<bool>>;
  Open open_ = std::make_shared<std::atomic<bool>>(false);
};

// Values of CU_MEM_LOCATION_TYPE_* as in CUDA 12.2.
inline constexpr auto kOnHost = static_cast<CUmemLocationType>(2);
inline constexpr auto kOnHostNuma = static_cast<CUmemLocationType>(3);
inline constexpr auto kOnHostNumaCurrent = static_cast<CUmemLocationType>(4);

// Physical memory of the device, or of the host, mapped at a reserved range.
class Mapped {
 public:
  explicit Mapped(std::size_t bytes, CUmemLocationType where = CU_MEM_LOCATION_TYPE_DEVICE)
      : size(bytes), place(where) {
    REQUIRE(cuMemAddressReserve(&address, size, 0, 0, 0) == CUDA_SUCCESS);
    REQUIRE(fill() == CUDA_SUCCESS);
  }
  // Creates the memory, maps it and makes it accessible, as in a restore.
  CUresult fill() {
    CUmemAllocationProp properties = {};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = place;
    CUresult result = cuMemCreate(&handle, size, &properties, 0);
    if (result != CUDA_SUCCESS) return result;
    REQUIRE(cuMemMap(address, size, 0, handle, 0) == CUDA_SUCCESS);
    REQUIRE(open() == CUDA_SUCCESS);
    return CUDA_SUCCESS;
  }
  CUresult open() const {
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuMemSetAccess(address, size, &access, 1);
  }
  void empty() const {
    REQUIRE(cuMemUnmap(address, size) == CUDA_SUCCESS);
    REQUIRE(cuMemRelease(handle) == CUDA_SUCCESS);
  }

  CUdeviceptr address = 0;
  CUmemGenericAllocationHandle handle = 0;
  std::size_t size;
  CUmemLocationType place;
};

// Runs one hidden case of this binary in a separate process, with additional environment variables. Returns
// true if the case passed.
bool passes_alone(const std::string& name,
                  const std::vector<std::pair<std::string, std::string>>& environment);

// The state file of this test run.
std::string state_path();

}  // namespace sharedgpu::simgpu_test
