// SPDX-License-Identifier: Apache-2.0
// Frees memory, captures streams and ends contexts while other work of the program runs on the GPU. No call
// may wait longer than without sharing, and no call may invalidate a capture.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using namespace std::chrono_literals;

extern "C" CUresult CUDAAPI cuCtxCreate_v2(CUcontext*, unsigned int, CUdevice);  // cuda.h may lack version 2

namespace {

constexpr std::size_t kBytes = std::size_t{16} << 20;

// Work on the GPU that lasts until the host ends it.
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

// cuMemFree for one GPU returns at once, although work on the other GPU does not end.
void free_beside_work() {
  on_device(0);
  Work work(new_stream());
  on_device(1);
  check(cuMemFree(allocate(kBytes)), "cuMemFree");
  work.end();
}

// Memory that is freed in one capture is released later. The release must not invalidate another capture.
void capture_after_free() {
  on_device(0);
  const CUstream stream = new_stream();
  const CUdeviceptr freed = allocate(kBytes);
  const CUdeviceptr kept = allocate(kBytes);
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  check(cuMemFree(freed), "cuMemFree");
  end(stream);
  Work work(new_stream());
  std::this_thread::sleep_for(2s);  // time for the deferred frees
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  work.end();
  std::this_thread::sleep_for(100ms);
  check(cuMemsetD8Async(kept, 1, kBytes, stream), "cuMemsetD8Async");
  end(stream);
}

// A capture on one GPU begins and ends while the turn cannot end because of work on the other GPU.
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
    std::this_thread::sleep_for(1500ms);  // by now, the turn is over
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

CUcontext make_context() {
  CUcontext context = nullptr;
  check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  return context;
}

CUdeviceptr written() {
  const CUdeviceptr memory = allocate(kBytes);
  check(cuMemsetD8(memory, 1, kBytes), "cuMemsetD8");
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  return memory;
}

CUdeviceptr allocate_async(CUstream stream) {
  CUdeviceptr memory = 0;
  check(cuMemAllocAsync(&memory, kBytes, stream), "cuMemAllocAsync");
  return memory;
}

void release() { check(cuDevicePrimaryCtxRelease(0), "cuDevicePrimaryCtxRelease"); }
void reset() { check(cuDevicePrimaryCtxReset(0), "cuDevicePrimaryCtxReset"); }

void ask_state() {
  unsigned flags = 0;
  int active = 0;
  check(cuDevicePrimaryCtxGetState(0, &flags, &active), "cuDevicePrimaryCtxGetState");
}

// Starts each of `actions` in a separate thread, 200 ms after the previous action.
template <class... Actions>
void one_after_another(Actions... actions) {
  std::vector<std::thread> threads;
  const auto begin_thread = [&](auto action) {
    threads.emplace_back(action);
    std::this_thread::sleep_for(200ms);
  };
  (begin_thread(actions), ...);
  for (std::thread& thread : threads) thread.join();
}

// Runs `actions` while another thread's cuMemFree in context `made` waits for work.
template <class... Actions>
void beside_free(CUcontext made, CUdeviceptr memory, Actions... actions) {
  one_after_another(
      [=] {
        use(made);
        check(cuMemFree(memory), "cuMemFree");
      },
      actions...);
}

// One thread ends the primary context while another thread queries its state.
template <class End>
void end_primary_beside_free(End end_primary) {
  const CUcontext made = make_context();
  const CUdeviceptr memory = written();
  on_device(0);
  Work work(new_stream());
  beside_free(made, memory, end_primary, [&] {
    ask_state();
    work.end();
  });
}

void destroy_beside_free() {
  const CUcontext other = make_context();
  const CUcontext made = make_context();
  const CUdeviceptr memory = written();
  Work work(new_stream());
  beside_free(made, memory, [&] {
    check(cuCtxDestroy(other), "cuCtxDestroy");
    work.end();
  });
}

void capture_beside_free() {
  const CUcontext made = make_context();
  const CUdeviceptr memory = written();
  const CUstream captured = new_stream();
  Work work(new_stream());
  beside_free(made, memory, [&] {
    use(made);
    begin(captured, CU_STREAM_CAPTURE_MODE_RELAXED);
    work.end();
    end(captured);
  });
}

// Memory that was freed in a capture is not released yet. Allocating memory and destroying a context must not
// wait for the GPU.
void allocate_after_capture() {
  const CUcontext other = make_context();
  make_context();
  const CUstream stream = new_stream();
  const CUdeviceptr freed = written();
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  check(cuMemFree(freed), "cuMemFree");
  end(stream);
  Work work(stream);
  allocate(kBytes);
  allocate_async(stream);
  check(cuCtxDestroy(other), "cuCtxDestroy");
  work.end();
}

// Runs `action` while other work runs on the GPU and a pool holds only memory that is not in use.
template <class Action>
void beside_unused_memory(cuuint64_t threshold, Action action) {
  make_context();
  const CUstream stream = new_stream();
  CUmemoryPool pool = nullptr;
  check(cuDeviceGetDefaultMemPool(&pool, 0), "cuDeviceGetDefaultMemPool");
  check(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold), "cuMemPoolSetAttribute");
  const CUdeviceptr memory = allocate_async(stream);
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  check(cuStreamSynchronize(stream), "cuStreamSynchronize");
  CUcontext primary = nullptr;
  check(cuDevicePrimaryCtxRetain(&primary, 0), "cuDevicePrimaryCtxRetain");
  Work work(stream);
  action(pool);
  work.end();
}

void ask_pool() {
  beside_unused_memory(0, [](CUmemoryPool pool) {
    cuuint64_t used = 0;
    check(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used), "cuMemPoolGetAttribute");
    check(cuMemPoolTrimTo(pool, 0), "cuMemPoolTrimTo");
  });
}

// One thread waits to release the last reference to the primary context. Meanwhile another thread takes a new
// reference, submits work and releases the new reference.
void overtaken_release() {
  const CUcontext made = make_context();
  const CUcontext primary = on_device(0);
  const CUstream second = new_stream();
  Work first_work(new_stream());
  std::unique_ptr<Work> second_work;
  use(made);
  one_after_another(
      release,
      [&] {
        const bool same = on_device(0) == primary;
        second_work = std::make_unique<Work>(same ? second : new_stream());
        use(made);
        release();
      },
      [&] { first_work.end(); },
      [&] {
        ask_state();
        second_work->end();
      });
}

// Memory is freed in stream order after unfinished work. Then the stream is captured and its context is
// destroyed.
void free_before_capture() {
  make_context();
  const CUstream other = new_stream();
  const CUcontext going = make_context();
  const CUstream stream = new_stream();
  const CUdeviceptr memory = allocate_async(stream);
  Work work(stream);
  check(cuMemsetD8Async(memory, 0xAA, kBytes, stream), "cuMemsetD8Async");
  check(cuMemFreeAsync(memory, stream), "cuMemFreeAsync");
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  check(cuCtxPopCurrent(nullptr), "cuCtxPopCurrent");
  std::thread destroyer([&] { check(cuCtxDestroy(going), "cuCtxDestroy"); });
  std::this_thread::sleep_for(200ms);
  const CUdeviceptr next = allocate_async(other);
  check(cuMemsetD8Async(next, 0x55, kBytes, other), "cuMemsetD8Async");
  check(cuStreamSynchronize(other), "cuStreamSynchronize");
  work.end();
  destroyer.join();
  unsigned char found = 0;
  check(cuMemcpyDtoH(&found, next + kBytes / 2, 1), "cuMemcpyDtoH");
  if (found != 0x55) fail("what was freed was given out while work used it");
}

struct Case {
  const char* name;
  void (*run)();
};
const Case kCases[] = {
    {"free", free_beside_work},
    {"after-free", capture_after_free},
    {"release", [] { end_primary_beside_free(release); }},
    {"reset", [] { end_primary_beside_free(reset); }},
    {"destroy", destroy_beside_free},
    {"capture", capture_beside_free},
    {"allocate", allocate_after_capture},
    {"release-unused", [] { beside_unused_memory(~0ull, [](CUmemoryPool) { release(); }); }},
    {"reset-unused", [] { beside_unused_memory(~0ull, [](CUmemoryPool) { reset(); }); }},
    {"ask-pool", ask_pool},
    {"overtaken", overtaken_release},
    {"fence", free_before_capture},
};

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Frees memory and captures streams while other work of its own is under way.");
  std::string bytes = "75%";
  app.add_option("--bytes", bytes, "device memory for the work beside a capture");
  std::string what = "beside";
  std::vector<std::string> names{what};
  for (const Case& each : kCases) names.emplace_back(each.name);
  app.add_option("what", what, "what is done beside the work").one_of(names);
  app.parse(argc, argv);
  alarm(60);  // a hang is an error
  check(cuInit(0), "cuInit");
  for (const Case& each : kCases)
    if (what == each.name) each.run();
  if (what == "beside") capture_beside_work(parse_size(bytes, 0));
  return 0;
}
