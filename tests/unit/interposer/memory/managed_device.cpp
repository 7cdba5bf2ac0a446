// SPDX-License-Identifier: Apache-2.0
// The calls to the driver for managed memory, checked with a driver that records them.
#include "interposer/memory/managed_device.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using namespace sharedgpu;

namespace {

using Notes = std::vector<std::string>;
Notes notes;
bool has_context = true;
CUresult without_context = CUDA_ERROR_INVALID_CONTEXT;
int pages = 1;  // whether the GPU supports paging

CUresult note(const std::string& text) {
  notes.push_back(text);
  return CUDA_SUCCESS;
}

DriverCalls calls() {
  DriverCalls made;
  made.cuMemGetAllocationGranularity = [](std::size_t*, const CUmemAllocationProp*,
                                          CUmemAllocationGranularity_flags) { return CUDA_SUCCESS; };
  made.cuCtxPushCurrent_v2 = [](CUcontext) {
    has_context = true;
    return note("push");
  };
  made.cuCtxPopCurrent_v2 = [](CUcontext*) {
    has_context = false;
    return note("pop");
  };
  made.cuStreamCreate = [](CUstream* stream, unsigned) {
    *stream = reinterpret_cast<CUstream>(std::uintptr_t{7});  // NOLINT(performance-no-int-to-ptr)
    return note("stream");
  };
  made.cuDeviceGetAttribute = [](int* value, CUdevice_attribute attribute, CUdevice) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS ? pages : 1;
    return CUDA_SUCCESS;
  };
  return made;
}

ManagedCalls managed() {
  return {.allocate =
              [](CUdeviceptr* address, std::size_t size, unsigned flags) {
                *address = 1 << 20;
                return note("allocate " + std::to_string(size) + " flags " + std::to_string(flags));
              },
          .free = [](CUdeviceptr) { return has_context ? note("free") : without_context; },
          .prefetch =
              [](CUdeviceptr, std::size_t size, CUdevice to, CUstream) {
                return note("prefetch " + std::to_string(size) + " to " + std::to_string(to));
              },
          .prefetch_v2 =
              [](CUdeviceptr, std::size_t size, CUmemLocation to, unsigned, CUstream) {
                return note("prefetch " + std::to_string(size) + " to type " +
                            std::to_string(static_cast<int>(to.type)) + " id " + std::to_string(to.id));
              },
          .advise =
              [](CUdeviceptr, std::size_t, CUmem_advise advice, CUdevice device) {
                return note(std::string(advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? "prefer " : "? ") +
                            std::to_string(device));
              },
          .advise_v2 =
              [](CUdeviceptr, std::size_t, CUmem_advise, CUmemLocation location) {
                return note("prefer type " + std::to_string(static_cast<int>(location.type)) + " id " +
                            std::to_string(location.id));
              },
          .current =
              [](CUcontext* context) {
                *context =
                    reinterpret_cast<CUcontext>(std::uintptr_t{7});  // NOLINT(performance-no-int-to-ptr)
                return CUDA_SUCCESS;
              }};
}

// Returns the calls that the driver records for an allocation, an eviction, a restore and a free.
Notes life(const ManagedCalls& functions) {
  ManagedDevice device(calls(), functions, 3);
  device.use_context(reinterpret_cast<CUcontext>(std::uintptr_t{5}));  // NOLINT(performance-no-int-to-ptr)
  notes.clear();
  has_context = true;
  CUdeviceptr base = 0;
  CHECK(device.reserve(&base, kibibytes(64)) == CUDA_SUCCESS);
  CHECK(device.goes_with() == reinterpret_cast<CUcontext>(std::uintptr_t{7}));  // NOLINT
  CHECK(device.prefetch({0}, base, kibibytes(64), Device::Side::host) == CUDA_SUCCESS);
  CHECK(device.prefetch({0}, base, kibibytes(64), Device::Side::gpu) == CUDA_SUCCESS);
  CHECK(device.unreserve(base, kibibytes(64)) == CUDA_SUCCESS);
  return notes;
}

}  // namespace

TEST_CASE("managed memory is asked for and moved by the first versions of the calls", "[managed]") {
  CHECK(life(managed()) == Notes{"allocate 65536 flags 1", "prefer 3", "stream", "prefetch 65536 to -1",
                                 "prefetch 65536 to 3", "free"});
}

TEST_CASE("where the first versions are gone, the second ones serve", "[managed]") {
  ManagedCalls newer = managed();
  newer.prefetch = nullptr;
  newer.advise = nullptr;
  CHECK(life(newer) == Notes{"allocate 65536 flags 1", "prefer type 1 id 3", "stream",
                             "prefetch 65536 to type 2 id 0", "prefetch 65536 to type 1 id 3", "free"});
  newer.advise_v2 = nullptr;
  CHECK(life(newer).size() == 5);
}

TEST_CASE("a thread without a context, or with one that is gone, borrows one to free managed memory",
          "[managed]") {
  without_context = GENERATE(CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  ManagedDevice device(calls(), managed(), 3);
  device.use_context(reinterpret_cast<CUcontext>(std::uintptr_t{5}));  // NOLINT(performance-no-int-to-ptr)
  notes.clear();
  has_context = false;
  CHECK(device.unreserve(1 << 20, kibibytes(64)) == CUDA_SUCCESS);
  CHECK(notes == Notes{"push", "free", "pop"});
}

TEST_CASE("a GPU or driver that cannot page is found out beforehand", "[managed]") {
  pages = 1;
  CHECK(lacks_for_managed(calls(), managed(), 3) == nullptr);
  pages = 0;
  CHECK(lacks_for_managed(calls(), managed(), 3) ==
        std::string("this GPU cannot migrate managed memory on page faults"));
  pages = 1;
  ManagedCalls none = managed();
  none.prefetch = nullptr;
  none.prefetch_v2 = nullptr;
  CHECK(lacks_for_managed(calls(), none, 3) == std::string("this driver cannot prefetch managed memory"));
}
