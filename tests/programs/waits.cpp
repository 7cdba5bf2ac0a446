// SPDX-License-Identifier: Apache-2.0
// Frees memory and captures streams while other work of its own is still under way: nothing may wait for more
// than it would without sharing, and nothing may spoil a capture.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using namespace std::chrono_literals;

namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;

// Work on the GPU that lasts until the host says so.
class Work {
 public:
  explicit Work(CUstream stream) { check(cuLaunchHostFunc(stream, wait, this), "cuLaunchHostFunc"); }
  void end() { over_ = true; }

 private:
  static void CUDA_CB wait(void* work) {
    while (!static_cast<Work*>(work)->over_) std::this_thread::sleep_for(1ms);
  }
  std::atomic<bool> over_{false};
};

CUstream new_stream() {
  CUstream stream = nullptr;
  check(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  return stream;
}

CUdeviceptr allocate(std::size_t bytes) {
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, bytes), "cuMemAlloc");
  return memory;
}

CUcontext on_device(CUdevice device) {
  CUcontext context = nullptr;
  check(cuDevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
  use(context);
  return context;
}

void begin(CUstream stream, CUstreamCaptureMode mode) {
  check(cuStreamBeginCapture(stream, mode), "cuStreamBeginCapture");
}

void end(CUstream stream) {
  CUgraph graph = nullptr;
  check(cuStreamEndCapture(stream, &graph), "cuStreamEndCapture");
  check(cuGraphDestroy(graph), "cuGraphDestroy");
}

// Memory of one GPU is free at once, though work on the other does not end.
void free_beside_work() {
  on_device(0);
  Work work(new_stream());
  on_device(1);
  check(cuMemFree(allocate(kBytes)), "cuMemFree");
  work.end();
}

// What was freed in one capture goes back later, and spoils no other.
void capture_after_free() {
  on_device(0);
  const CUstream stream = new_stream();
  const CUdeviceptr freed = allocate(kBytes);
  const CUdeviceptr kept = allocate(kBytes);
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  check(cuMemFree(freed), "cuMemFree");
  end(stream);
  Work work(new_stream());
  std::this_thread::sleep_for(2s);  // time to go about what was freed
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  work.end();
  std::this_thread::sleep_for(100ms);
  check(cuMemsetD8Async(kept, 1, kBytes, stream), "cuMemsetD8Async");
  end(stream);
}

// A capture on one GPU, begun and ended while the end of a turn waits for the other.
void capture_beside_work(std::size_t bytes) {
  on_device(0);
  const CUdeviceptr busy = allocate(bytes);
  CUcontext first = nullptr;
  check(cuCtxGetCurrent(&first), "cuCtxGetCurrent");
  on_device(1);
  const CUdeviceptr memory = allocate(kBytes);
  const CUstream captured = new_stream();
  for (int turn = 0; turn < 3; ++turn) {
    use(first);
    for (int i = 0; i < 20; ++i) check(cuMemsetD8(busy, 1, bytes), "cuMemsetD8");
    Work work(new_stream());
    std::this_thread::sleep_for(1500ms);  // the turn is over by now
    on_device(1);
    begin(captured, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    work.end();
    std::this_thread::sleep_for(100ms);
    check(cuMemsetD8Async(memory, 1, kBytes, captured), "cuMemsetD8Async");
    end(captured);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    use(first);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Frees memory and captures streams while other work of its own is under way.");
  std::string bytes = "75%";
  app.add_option("--bytes", bytes, "device memory for the work beside a capture");
  std::string what = "free";
  app.add_option("what", what,
                 "free: on one GPU while the other works; after-free: capture after what an earlier "
                 "capture freed; beside: capture on one GPU while the other works")
      .one_of({"free", "after-free", "beside"});
  app.parse(argc, argv);
  alarm(60);  // a hang is an error
  check(cuInit(0), "cuInit");
  if (what == "free") free_beside_work();
  if (what == "after-free") capture_after_free();
  if (what == "beside") capture_beside_work(parse_size(bytes, 0));
  return 0;
}
