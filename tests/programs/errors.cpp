// SPDX-License-Identifier: Apache-2.0
// Prints what the driver answers to many calls, wrong ones among them, and then again after a kernel has
// failed (on the simulated GPU: SIMGPU_LAUNCH_FAIL_AT=1). The answers must be the same whatever stands in
// between.
#include <cstdio>

#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

void tell(const char* call, CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("%s: %s\n", call, name == nullptr ? "?" : name);
}

struct Things {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmemoryPool pool = nullptr;
  CUmemoryPool shareable = nullptr;
  CUmemAllocationProp kind = {};
  CUdeviceptr plain = 0;
  CUdeviceptr pooled = 0;
};

void ask(const Things& things) {
  CUdeviceptr memory = 0;
  std::size_t size = 0;
  char bytes[16];
  CUmemGenericAllocationHandle handle = 0;
  tell("cuCtxSynchronize", cuCtxSynchronize());
  tell("cuStreamQuery", cuStreamQuery(things.stream));
  tell("cuMemAlloc of a little", cuMemAlloc(&memory, 512));
  tell("cuMemAlloc of much", cuMemAlloc(&memory, 32 << 20));
  tell("cuMemAlloc of nothing", cuMemAlloc(&memory, 0));
  tell("cuMemAlloc to nowhere", cuMemAlloc(nullptr, 512));
  tell("cuMemAllocPitch", cuMemAllocPitch(&memory, &size, 100, 10, 4));
  tell("cuMemAllocPitch of odd elements", cuMemAllocPitch(&memory, &size, 100, 10, 3));
  tell("cuMemFree of nothing", cuMemFree(0));
  tell("cuMemFree of a wrong address", cuMemFree(12345));
  tell("cuMemAllocAsync", cuMemAllocAsync(&memory, 512, things.stream));
  tell("cuMemAllocAsync of far too much", cuMemAllocAsync(&memory, ~std::size_t{0}, things.stream));
  tell("cuMemAllocAsync of nothing", cuMemAllocAsync(&memory, 0, things.stream));
  tell("cuMemAllocAsync to nowhere", cuMemAllocAsync(nullptr, 512, things.stream));
  tell("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&memory, 512, things.pool, things.stream));
  tell("cuMemAllocFromPoolAsync of no pool", cuMemAllocFromPoolAsync(&memory, 512, nullptr, things.stream));
  tell("cuMemAllocFromPoolAsync of far too much, shareable",
       cuMemAllocFromPoolAsync(&memory, std::size_t{1} << 55, things.shareable, things.stream));
  tell("cuMemCreate of far too much", cuMemCreate(&handle, std::size_t{1} << 55, &things.kind, 0));
  tell("cuMemFreeAsync of a wrong address", cuMemFreeAsync(12345, things.stream));
  tell("cuMemGetInfo", cuMemGetInfo(&size, &size));
  tell("cuMemGetAddressRange of a wrong address", cuMemGetAddressRange(&memory, &size, 12345));
  tell("cuMemcpyDtoH", cuMemcpyDtoH(bytes, things.plain, sizeof bytes));
  tell("cuMemsetD8Async", cuMemsetD8Async(things.plain, 0, 16, things.stream));
  tell("cuEventRecord", cuEventRecord(things.event, things.stream));
  tell("cuMemRelease of no handle", cuMemRelease(12345));
  tell("cuMemPoolDestroy of no pool", cuMemPoolDestroy(nullptr));
}

}  // namespace

int main() {
  start();
  Kernels kernels;
  Things things;
  check(cuStreamCreate(&things.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  check(cuEventCreate(&things.event, 0), "cuEventCreate");
  check(cuDeviceGetDefaultMemPool(&things.pool, 0), "cuDeviceGetDefaultMemPool");
  things.kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  things.kind.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemPoolProps shareable = {};
  shareable.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  shareable.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  shareable.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  check(cuMemPoolCreate(&things.shareable, &shareable), "cuMemPoolCreate");
  check(cuMemAlloc(&things.plain, 1 << 20), "cuMemAlloc");
  check(cuMemAllocAsync(&things.pooled, 1 << 20, things.stream), "cuMemAllocAsync");
  ask(things);
  std::uint64_t words = 16;
  std::uint64_t zero = 0;
  launch(kernels["pattern_fill"], words, things.stream, {&things.plain, &words, &zero, &zero});
  std::printf("a kernel has run\n");
  ask(things);
  tell("cuMemFree", cuMemFree(things.plain));
  tell("cuMemFreeAsync", cuMemFreeAsync(things.pooled, things.stream));
  tell("cuStreamDestroy", cuStreamDestroy(things.stream));
  return 0;
}
