// SPDX-License-Identifier: Apache-2.0
// The calls to the driver, checked with a driver that records them.
#define __CUDA_API_VERSION_INTERNAL
#include "interposer/memory/driver_device.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "interposer/memory/fingerprint_kernel.h"

using namespace sharedgpu;

namespace {

std::vector<std::string> notes;
CUresult answer = CUDA_SUCCESS;

CUresult note(const std::string& text) {
  notes.push_back(text);
  return answer;
}

template <class T>
T fake(std::uintptr_t value) {
  return reinterpret_cast<T>(value);
}

std::string number(const void* p) { return std::to_string(reinterpret_cast<std::uintptr_t>(p)); }

DriverCalls note_taker() {
  DriverCalls calls;
  calls.cuMemGetAllocationGranularity = [](std::size_t* size, const CUmemAllocationProp* prop,
                                           CUmemAllocationGranularity_flags) {
    *size = 4u << 20;
    return prop->location.id == 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  calls.cuMemAddressReserve = [](CUdeviceptr* base, std::size_t, std::size_t, CUdeviceptr,
                                 unsigned long long) {
    *base = 1ull << 40;
    return note("reserve");
  };
  calls.cuMemAddressFree = [](CUdeviceptr, std::size_t) { return note("unreserve"); };
  calls.cuMemCreate = [](CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp* prop,
                         unsigned long long) {
    *handle = 5;
    return note(prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                        prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE && prop->location.id == 3
                    ? "create"
                    : "create elsewhere");
  };
  calls.cuMemRelease = [](CUmemGenericAllocationHandle) { return note("release"); };
  calls.cuMemMap = [](CUdeviceptr, std::size_t, std::size_t offset, CUmemGenericAllocationHandle,
                      unsigned long long) { return note("map at " + std::to_string(offset)); };
  calls.cuMemSetAccess = [](CUdeviceptr, std::size_t, const CUmemAccessDesc* access, std::size_t count) {
    return note(count == 1 && access->location.id == 3 && access->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                    ? "access"
                    : "wrong access");
  };
  calls.cuMemRetainAllocationHandle = [](CUmemGenericAllocationHandle*, void*) { return note("retain"); };
  calls.cuMemUnmap = [](CUdeviceptr, std::size_t) { return note("unmap"); };
  calls.cuCtxPushCurrent_v2 = [](CUcontext context) { return note("push " + number(context)); };
  calls.cuCtxPopCurrent_v2 = [](CUcontext*) { return note("pop"); };
  calls.cuStreamCreate = [](CUstream* stream, unsigned flags) {
    *stream = fake<CUstream>(100 + notes.size());
    return note(flags == CU_STREAM_NON_BLOCKING ? "stream" : "blocking stream");
  };
  calls.cuStreamDestroy_v2 = [](CUstream) { return note("destroy"); };
  calls.cuStreamSynchronize = [](CUstream stream) { return note("wait " + number(stream)); };
  calls.cuMemcpyDtoHAsync_v2 = [](void*, CUdeviceptr, std::size_t, CUstream stream) {
    return note("out " + number(stream));
  };
  calls.cuMemcpyHtoDAsync_v2 = [](CUdeviceptr, const void*, std::size_t, CUstream stream) {
    return note("in " + number(stream));
  };
  calls.cuMemHostRegister_v2 = [](void*, std::size_t, unsigned flags) {
    return note(flags == CU_MEMHOSTREGISTER_PORTABLE ? "pin" : "pin oddly");
  };
  calls.cuMemHostUnregister = [](void*) { return note("unpin"); };
  return calls;
}

// Returns the calls that were recorded since the last check.
std::vector<std::string> taken() { return std::exchange(notes, {}); }
using Notes = std::vector<std::string>;

struct Fresh {
  Fresh() {
    notes.clear();
    answer = CUDA_SUCCESS;
  }
};

}  // namespace

TEST_CASE("the driver's functions are complete or not", "[driver]") {
  DriverCalls calls = note_taker();
  CHECK(calls.complete());
  calls.cuMemMap = nullptr;
  CHECK_FALSE(calls.complete());
}

TEST_CASE("memory is asked for on the device", "[driver]") {
  const Fresh fresh;
  DriverDevice device(note_taker(), 3);
  CHECK(device.granularity() == mebibytes(4));
  CUdeviceptr base = 0;
  Physical physical = 0;
  CHECK(device.reserve(&base, mebibytes(4)) == CUDA_SUCCESS);
  CHECK(device.create(&physical, mebibytes(4), nullptr) == CUDA_SUCCESS);
  CHECK(device.map(base, mebibytes(4), physical) == CUDA_SUCCESS);
  CHECK(device.allow_access(base, mebibytes(4)) == CUDA_SUCCESS);
  CHECK(device.release(physical) == CUDA_SUCCESS);
  CHECK(device.unmap(base, mebibytes(4)) == CUDA_SUCCESS);
  CHECK(device.unreserve(base, mebibytes(4)) == CUDA_SUCCESS);
  CHECK(taken() == Notes{"reserve", "create", "map at 0", "access", "release", "unmap", "unreserve"});
  CHECK(base == 1ull << 40);
  CHECK(physical == 5);
}

TEST_CASE("an unknown granularity is taken for 2 MiB", "[driver]") {
  CHECK(DriverDevice(note_taker(), 4).granularity() == mebibytes(2));
}

TEST_CASE("copies run on the lane's own stream, made at first use", "[driver]") {
  const Fresh fresh;
  DriverDevice device(note_taker(), 3);
  CHECK(device.enter() == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(taken().empty());

  device.use_context(fake<CUcontext>(9));
  CHECK(taken().empty());
  std::byte data{};
  REQUIRE(device.enter() == CUDA_SUCCESS);
  CHECK(device.wait({0}) == CUDA_SUCCESS);
  CHECK(device.copy_out({0}, &data, 0, {1}) == CUDA_SUCCESS);
  CHECK(device.copy_in({0}, 0, &data, {1}) == CUDA_SUCCESS);
  CHECK(device.copy_in({2}, 0, &data, {1}) == CUDA_SUCCESS);
  CHECK(device.wait({0}) == CUDA_SUCCESS);
  device.leave();
  CHECK(taken() == Notes{"push 9", "stream", "out 101", "in 101", "stream", "in 104", "wait 101", "pop"});

  device.use_context(fake<CUcontext>(9));
  CHECK(taken().empty());
  device.use_context(nullptr);
  CHECK(taken() == Notes{"push 9", "destroy", "destroy", "pop"});
}

TEST_CASE("host memory is pinned within the context, by threads that have entered and by others",
          "[driver]") {
  const Fresh fresh;
  DriverDevice device(note_taker(), 3);
  std::byte data{};
  CHECK(device.pin_host(&data, {1}) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(device.unpin_host(&data) == CUDA_ERROR_INVALID_CONTEXT);
  CHECK(taken().empty());

  device.use_context(fake<CUcontext>(9));
  CHECK(device.pin_host(&data, {1}) == CUDA_SUCCESS);
  CHECK(taken() == Notes{"push 9", "pin", "pop"});
  REQUIRE(device.enter() == CUDA_SUCCESS);
  CHECK(device.unpin_host(&data) == CUDA_SUCCESS);
  device.leave();
  CHECK(taken() == Notes{"push 9", "push 9", "unpin", "pop", "pop"});

  answer = CUDA_ERROR_CONTEXT_IS_DESTROYED;
  CHECK(device.pin_host(&data, {1}) == CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CHECK(taken() == Notes{"push 9"});
}

TEST_CASE("the GPU's NUMA node is the driver's, or what the kernel knows of its PCI address", "[driver]") {
  DriverCalls calls = note_taker();
  CHECK(DriverDevice(calls, 3).host_node() == std::nullopt);
  calls.cuDeviceGetAttribute = [](int* value, CUdevice_attribute name, CUdevice) {
    *value = 5;
    return static_cast<int>(name) == 134 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  };
  CHECK(DriverDevice(calls, 3).host_node() == 5u);
  calls.cuDeviceGetAttribute = [](int* value, CUdevice_attribute name, CUdevice) {
    *value = static_cast<int>(name) == 134 ? -1 : 0xffff;  // the driver's answer if the node is unknown
    return CUDA_SUCCESS;
  };
  CHECK(DriverDevice(calls, 3).host_node() == std::nullopt);
}

TEST_CASE("ending() returns true once the driver shuts down", "[driver]") {
  const Fresh fresh;
  DriverCalls calls = note_taker();
  static CUresult said;
  calls.cuDeviceGetAttribute = [](int*, CUdevice_attribute, CUdevice) { return said; };
  DriverDevice device(calls, 3);
  for (const CUresult other : {CUDA_SUCCESS, CUDA_ERROR_UNKNOWN}) {
    said = other;
    CHECK_FALSE(device.ending());
  }
  said = CUDA_ERROR_DEINITIALIZED;
  CHECK(device.ending());
}

TEST_CASE("the streams of a lost context are forgotten", "[driver]") {
  const Fresh fresh;
  DriverDevice device(note_taker(), 3);
  device.use_context(fake<CUcontext>(9));
  REQUIRE(device.enter() == CUDA_SUCCESS);
  std::byte data{};
  CHECK(device.copy_out({0}, &data, 0, {1}) == CUDA_SUCCESS);
  device.leave();
  answer = CUDA_ERROR_INVALID_CONTEXT;
  CHECK(device.enter() == CUDA_ERROR_INVALID_CONTEXT);
  device.use_context(fake<CUcontext>(10));
  answer = CUDA_SUCCESS;
  taken();
  REQUIRE(device.enter() == CUDA_SUCCESS);
  CHECK(device.copy_out({0}, &data, 0, {1}) == CUDA_SUCCESS);
  device.leave();
  CHECK(taken() == Notes{"push 10", "stream", "out 101", "pop"});
}

TEST_CASE("a capture elsewhere does not forbid the service thread to synchronize", "[driver]") {
  const Fresh fresh;
  DriverCalls calls = note_taker();
  static CUstreamCaptureMode mode;
  mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  calls.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode* other) {
    std::swap(mode, *other);
    return CUDA_SUCCESS;
  };
  DriverDevice device(calls, 3);
  device.use_context(fake<CUcontext>(9));
  REQUIRE(device.enter() == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
  device.leave();
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

TEST_CASE("only work of the device and its peers is waited for", "[driver]") {
  static std::vector<CUdevice> asked;
  DriverDevice device(note_taker(), 3, [](const std::vector<CUdevice>& devices) {
    asked = devices;
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  });
  CHECK(device.synchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  CHECK(asked == std::vector<CUdevice>{3});
  device.set_peer(5, true);
  device.set_peer(1, true);
  device.set_peer(5, false);
  device.synchronize();
  CHECK(asked == std::vector<CUdevice>{3, 1});
}

namespace {

// The results of the fake driver's functions for modules and kernels.
CUresult load_answer = CUDA_SUCCESS;
bool kernel_runs = true;

// A driver whose GPU is this CPU: the ranges are memory of this process.
DriverCalls looking() {
  load_answer = CUDA_SUCCESS;
  kernel_runs = true;
  DriverCalls calls = note_taker();
  calls.cuMemsetD32Async = [](CUdeviceptr, unsigned word, std::size_t count, CUstream stream) {
    return note("set " + std::to_string(word) + " " + std::to_string(count) + " times on " + number(stream));
  };
  calls.cuModuleLoadData = [](CUmodule* module, const void*) {
    *module = fake<CUmodule>(7);
    notes.push_back("load");
    return load_answer;
  };
  calls.cuModuleUnload = [](CUmodule module) { return note("unload " + number(module)); };
  calls.cuModuleGetFunction = [](CUfunction* function, CUmodule, const char* name) {
    *function = fake<CUfunction>(8);
    return note(name);
  };
  calls.cuMemHostAlloc = [](void** data, std::size_t size, unsigned) {
    *data = std::calloc(1, size);
    return note("host");
  };
  calls.cuMemFreeHost = [](void* data) {
    std::free(data);
    return note("free host");
  };
  calls.cuLaunchKernel = [](CUfunction, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                            unsigned, unsigned, CUstream stream, void** parameters, void**) {
    const auto at = [=](int i) { return *static_cast<std::uint64_t*>(parameters[i]); };
    const auto& key = *static_cast<const fingerprint::KernelKey*>(parameters[4]);
    const Bytes size{at(1) * fingerprint::kPart.count};
    for (std::uint64_t i = 0; kernel_runs && i < at(1); ++i)
      fake<fingerprint::Part*>(at(2))[i] = fingerprint::look(key, fake<std::byte*>(at(0)), size, i, at(3));
    return note(std::to_string(blocks) + " blocks of " + std::to_string(threads) + " on " + number(stream));
  };
  return calls;
}

struct Looker {
  explicit Looker(const DriverCalls& calls) : device(calls, 3), data(2 * fingerprint::kPart.count) {
    device.use_context(fake<CUcontext>(9));
  }
  ~Looker() { device.use_context(nullptr); }
  CUresult look() {
    const Look ranges[] = {{address(0), fingerprint::kPart}, {address(1), fingerprint::kPart}};
    const DeviceScope scope(device);
    return device.fingerprints(ranges, found);
  }
  CUdeviceptr address(std::size_t part) {
    return reinterpret_cast<CUdeviceptr>(data.data()) + part * fingerprint::kPart.count;
  }
  const Fresh fresh;
  DriverDevice device;
  std::vector<std::byte> data;
  Fingerprint found[2];
};

}  // namespace

TEST_CASE("fingerprints are computed on a separate stream, with a kernel that is loaded once", "[driver]") {
  Looker t(looking());
  taken();
  REQUIRE(t.look() == CUDA_SUCCESS);
  CHECK(taken() == Notes{"push 9", "stream", "load", fingerprint::kKernelName, "host",
                         "1 blocks of 256 on 101", "1 blocks of 256 on 101", "wait 101", "pop"});
  CHECK(t.found[0] == t.found[1]);
  CHECK(t.found[0].uniform);
  t.data.front() = std::byte{1};
  REQUIRE(t.look() == CUDA_SUCCESS);
  CHECK(taken() == Notes{"push 9", "1 blocks of 256 on 101", "1 blocks of 256 on 101", "wait 101", "pop"});
  CHECK(t.found[0].hash != t.found[1].hash);
  CHECK_FALSE(t.found[0].uniform);

  t.device.use_context(nullptr);
  CHECK(taken() == Notes{"push 9", "unload 7", "free host", "destroy", "pop"});
  t.device.use_context(fake<CUcontext>(10));
  REQUIRE(t.look() == CUDA_SUCCESS);
  CHECK(taken().at(2) == "load");
}

TEST_CASE("a kernel that cannot be loaded is tried again only if it failed for lack of memory", "[driver]") {
  Looker t(looking());
  load_answer = CUDA_ERROR_OUT_OF_MEMORY;
  CHECK(t.look() == CUDA_ERROR_NOT_SUPPORTED);
  load_answer = CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  CHECK(t.look() == CUDA_ERROR_NOT_SUPPORTED);
  taken();
  load_answer = CUDA_SUCCESS;
  CHECK(t.look() == CUDA_ERROR_NOT_SUPPORTED);
  CHECK(taken() == Notes{"push 9", "pop"});
  t.device.use_context(fake<CUcontext>(10));
  CHECK(t.look() == CUDA_SUCCESS);
}

TEST_CASE("a driver that lacks a function gives no fingerprints", "[driver]") {
  DriverCalls calls = looking();
  SECTION("to write what was looked at") { calls.cuMemsetD32Async = nullptr; }
  SECTION("to look") { calls.cuModuleLoadData = nullptr; }
  Looker t(calls);
  CHECK(t.look() == CUDA_ERROR_NOT_SUPPORTED);
}

TEST_CASE("a kernel that has not run gives no fingerprints", "[driver]") {
  Looker t(looking());
  REQUIRE(t.look() == CUDA_SUCCESS);
  kernel_runs = false;
  CHECK(t.look() == CUDA_ERROR_UNKNOWN);
}

TEST_CASE("ranges of sizes that the kernel does not support get no fingerprint", "[driver]") {
  Looker t(looking());
  const DeviceScope scope(t.device);
  for (const Bytes size : {fingerprint::kPart - Bytes{16}, fingerprint::kLargest + fingerprint::kPart}) {
    const Look range{t.address(0), size};
    CHECK(t.device.fingerprints({&range, 1}, t.found) == CUDA_ERROR_NOT_SUPPORTED);
  }
  taken();
}

TEST_CASE("a word is written on the lane's stream", "[driver]") {
  Looker t(looking());
  taken();
  const DeviceScope scope(t.device);
  CHECK(t.device.fill({1}, 0, {4096}, 7) == CUDA_SUCCESS);
  CHECK(taken() == Notes{"push 9", "stream", "set 7 1024 times on 101"});
}
