// SPDX-License-Identifier: Apache-2.0
// Prints the driver's answers to many right and wrong calls, and prints the answers again after a kernel has
// failed (on the simulated GPU: SIMGPU_LAUNCH_FAIL_AT=1). The answers must be the same with and without the
// library.
#include <cstdio>
#include <functional>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

void tell(const char* call, CUresult result) {
  const char* name = nullptr;
  cuGetErrorName(result, &name);
  std::printf("result %s: %s\n", call, name == nullptr ? "?" : name);
}

struct Things {
  CUstream stream = nullptr;
  CUevent event = nullptr;
  CUmemoryPool pool = nullptr;
  CUmemoryPool shareable = nullptr;
  CUmemAllocationProp kind = {};
  CUdeviceptr plain = 0;
  CUdeviceptr pooled = 0;
  bool no_handles = false;
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
  tell("cuMemAllocPitch of rows longer than can be", cuMemAllocPitch(&memory, &size, ~std::size_t{0}, 1, 4));
  tell("cuMemAllocPitch of more than can be",
       cuMemAllocPitch(&memory, &size, std::size_t{1} << 40, std::size_t{1} << 40, 4));
  tell("cuMemAllocPitch of far too much", cuMemAllocPitch(&memory, &size, std::size_t{1} << 40, 1, 4));
  tell("cuMemFree of nothing", cuMemFree(0));
  tell("cuMemFree of a wrong address", cuMemFree(12345));
  tell("cuMemAllocAsync", cuMemAllocAsync(&memory, 512, things.stream));
  tell("cuMemAllocAsync of far too much", cuMemAllocAsync(&memory, ~std::size_t{0}, things.stream));
  tell("cuMemAllocAsync of nothing", cuMemAllocAsync(&memory, 0, things.stream));
  tell("cuMemAllocAsync to nowhere", cuMemAllocAsync(nullptr, 512, things.stream));
  tell("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&memory, 512, things.pool, things.stream));
  tell("cuMemAllocFromPoolAsync of far too much, shareable",
       cuMemAllocFromPoolAsync(&memory, std::size_t{1} << 55, things.shareable, things.stream));
  tell("cuMemCreate of far too much", cuMemCreate(&handle, std::size_t{1} << 55, &things.kind, 0));
  tell("cuMemFreeAsync of a wrong address", cuMemFreeAsync(12345, things.stream));
  tell("cuMemGetInfo", cuMemGetInfo(&size, &size));
  tell("cuMemGetAddressRange of a wrong address", cuMemGetAddressRange(&memory, &size, 12345));
  tell("cuMemcpyDtoH", cuMemcpyDtoH(bytes, things.plain, sizeof bytes));
  tell("cuMemsetD8Async", cuMemsetD8Async(things.plain, 0, 16, things.stream));
  tell("cuEventRecord", cuEventRecord(things.event, things.stream));
  if (!things.no_handles) return;
  tell("cuMemRelease of no handle", cuMemRelease(12345));
  tell("cuMemPoolDestroy of no pool", cuMemPoolDestroy(nullptr));
  tell("cuMemAllocFromPoolAsync of no pool", cuMemAllocFromPoolAsync(&memory, 512, nullptr, things.stream));
}

struct Mode {
  const char* name;
  CUstreamCaptureMode mode;
};

// Makes a call during a capture of this mode, and prints whether the capture allows the call, and whether the
// call leaves the capture valid.
void ask_in_capture(const Things& things, const Mode& mode, const char* call,
                    const std::function<CUresult()>& ask) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CUgraph graph = nullptr;
  check(cuStreamBeginCapture(things.stream, mode.mode), "cuStreamBeginCapture");
  const CUresult answer = ask();
  check(cuStreamIsCapturing(things.stream, &status), "cuStreamIsCapturing");
  std::printf("result in a %s capture, which is then %d,\n", mode.name, static_cast<int>(status));
  tell(call, answer);
  if (cuStreamEndCapture(things.stream, &graph) == CUDA_SUCCESS)
    check(cuGraphDestroy(graph), "cuGraphDestroy");
}

// Makes each call from the capturing thread, and some calls also from another thread.
void ask_in_captures(const Things& things) {
  CUcontext context = nullptr;
  check(cuCtxGetCurrent(&context), "cuCtxGetCurrent");
  for (const Mode mode :
       {Mode{"global", CU_STREAM_CAPTURE_MODE_GLOBAL}, Mode{"thread's", CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
        Mode{"relaxed", CU_STREAM_CAPTURE_MODE_RELAXED}}) {
    CUdeviceptr memory = 0;
    CUdeviceptr pitched = 0;
    CUdeviceptr to_free = 0;
    std::size_t pitch = 0;
    check(cuMemAlloc(&to_free, 1 << 20), "cuMemAlloc");
    const auto alloc = [&] { return cuMemAlloc(&memory, 1 << 20); };
    ask_in_capture(things, mode, "cuMemAlloc", alloc);
    ask_in_capture(things, mode, "cuMemAlloc by another thread", [&] {
      CUresult answer = CUDA_SUCCESS;
      std::thread([&] {
        use(context);
        answer = alloc();
      }).join();
      return answer;
    });
    ask_in_capture(things, mode, "cuMemAlloc of nothing", [&] { return cuMemAlloc(&memory, 0); });
    ask_in_capture(things, mode, "cuMemAllocPitch",
                   [&] { return cuMemAllocPitch(&pitched, &pitch, 100, 10, 4); });
    ask_in_capture(things, mode, "cuMemAllocPitch of odd elements",
                   [&] { return cuMemAllocPitch(&pitched, &pitch, 100, 10, 3); });
    ask_in_capture(things, mode, "cuMemFree of nothing", [&] { return cuMemFree(0); });
    ask_in_capture(things, mode, "cuMemFree of a wrong address", [&] { return cuMemFree(12345); });
    ask_in_capture(things, mode, "cuMemFree", [&] { return cuMemFree(to_free); });
    ask_in_capture(things, mode, "cuMemGetInfo", [&] { return cuMemGetInfo(&pitch, &pitch); });
  }
}

void run(Things things) {
  start();
  Kernels kernels;
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
  ask_in_captures(things);
  std::uint64_t words = 16;
  std::uint64_t zero = 0;
  launch(kernels["pattern_fill"], words, things.stream, {&things.plain, &words, &zero, &zero});
  std::printf("a kernel has run\n");
  ask(things);
  tell("cuMemFree", cuMemFree(things.plain));
  tell("cuMemFreeAsync", cuMemFreeAsync(things.pooled, things.stream));
  tell("cuStreamDestroy", cuStreamDestroy(things.stream));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Prints the driver's answers to right and wrong calls.");
  Things things;
  app.add_flag("--no-handles", things.no_handles,
               "also with handles that are none, on which a real driver may crash");
  app.parse(argc, argv);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  return status_of([&] { run(things); });
}
