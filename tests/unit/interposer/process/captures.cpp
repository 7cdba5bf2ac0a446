// SPDX-License-Identifier: Apache-2.0
// Tests stream captures on the simulated GPU, with an arbiter. Each capture is counted exactly until its end,
// and the library never disturbs a capture. (Issues 22 and 28 of nvshare: a synchronization invalidated
// captures.)
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>

#include "interposer/driver/call.h"
#include "interposer/gate/captures.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

constexpr std::size_t kBytes = 1 << 20;

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

template <class Work>
void on_a_thread(CUcontext context, Work work) {
  std::thread([&] {
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    work();
  }).join();
}

CUstream new_stream() {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  return stream;
}

void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
  REQUIRE(cuStreamBeginCapture_v2(stream, mode) == CUDA_SUCCESS);
  REQUIRE(gate::capturing());
}

void ends_as_it_should(CUcontext context) {
  CUstream stream = new_stream();
  CUgraph graph = nullptr;
  begin(stream);
  // Wrong calls do not end a capture.
  CHECK(cuStreamEndCapture(stream, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(gate::capturing());
  on_a_thread(context, [&] {
    CUgraph none = nullptr;
    CHECK(cuStreamEndCapture(stream, &none) == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  });
  CHECK(gate::capturing());
  // A second cuStreamBeginCapture, and cuStreamEndCapture on another stream, do not end a capture either.
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(gate::capturing());
  CUstream other = new_stream();
  CHECK(cuStreamEndCapture(other, &graph) == CUDA_ERROR_ILLEGAL_STATE);
  CHECK(gate::capturing());
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(!gate::capturing());
  CHECK(graph != nullptr);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(other) == CUDA_SUCCESS);

  // A relaxed capture may end on another thread.
  begin(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
  on_a_thread(context, [&] { CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS); });
  CHECK(!gate::capturing());
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);

  // An invalidated capture ends with an error.
  begin(stream);
  CHECK(cuStreamSynchronize(stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CHECK(gate::capturing());
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(!gate::capturing());
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

void dies_with_its_stream() {
  CUstream stream = new_stream();
  begin(stream);
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
  CHECK(!gate::capturing());
}

void dies_with_its_context(CUcontext context) {
  CUcontext other = nullptr;
  REQUIRE(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  CUstream stream = new_stream();
  begin(stream);
  // Destroying the context ends its default streams in other threads, too, and their captures.
  std::promise<void> captured;
  std::promise<void> destroyed;
  std::thread thread([&] {
    CHECK(cuCtxPushCurrent_v2(other) == CUDA_SUCCESS);
    begin(CU_STREAM_PER_THREAD);
    captured.set_value();
    destroyed.get_future().wait();
  });
  captured.get_future().wait();
  // The captures in other contexts continue.
  CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  CUstream survivor = new_stream();
  begin(survivor);
  CHECK(cuCtxPopCurrent_v2(&context) == CUDA_SUCCESS);
  CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS);
  destroyed.set_value();
  thread.join();
  CHECK(gate::capturing());
  CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  CUgraph graph = nullptr;
  CHECK(cuStreamEndCapture(survivor, &graph) == CUDA_SUCCESS);
  CHECK(!gate::capturing());
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(survivor) == CUDA_SUCCESS);
}

void dies_with_its_thread(CUcontext context) {
  on_a_thread(context, [] { begin(CU_STREAM_PER_THREAD); });
  CHECK(!gate::capturing());
  on_a_thread(context, [] {
    CHECK(cuStreamBeginCapture_v2_ptsz(nullptr, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS);
  });
  CHECK(!gate::capturing());

  // A stream that the program created outlives the thread, and so does a capture on this stream.
  CUstream stream = new_stream();
  on_a_thread(context, [&] { begin(stream); });
  CHECK(gate::capturing());
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  CHECK(cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS);
  CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
  CHECK(!gate::capturing());
}

}  // namespace

TEST_CASE("a capture counts until it is over, however it ends") {
  const std::string socket = "/tmp/sharedgpu-captures-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = arbiter.allowed = mebibytes(48);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  beside(arbiter, [&] {
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&address, kBytes) == CUDA_SUCCESS);
  });
  REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);

  ends_as_it_should(context);
  dies_with_its_stream();
  dies_with_its_context(context);
  dies_with_its_thread(context);

  // A turn ends in the middle of a capture: submissions of the capture pass the gate, and the drain waits.
  CUstream stream = new_stream();
  CUgraph graph = nullptr;
  begin(stream);
  arbiter.page().set_contended(true);
  arbiter.page().set_open(false);
  arbiter.say(Revoke{.epoch = {1}});
  auto released = std::async(std::launch::async, [&] { return arbiter.expect<Released>(); });
  for (int i = 0; i < 20; ++i) {
    CHECK(cuMemsetD8Async(address, static_cast<unsigned char>(i), kBytes, stream) == CUDA_SUCCESS);
    CHECK(released.wait_for(10ms) == std::future_status::timeout);
  }
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);  // nothing has invalidated the capture
  CHECK(released.get().epoch == Epoch{1});
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  arbiter.page().set_contended(false);

  // A capture that the library has not seen: the context cannot be synchronized, so the session does not
  // drain.
  arbiter.say(Restore{.epoch = {2}, .allowed = mebibytes(48)});
  arbiter.expect<Ready>();
  arbiter.page().set_open(true);
  REQUIRE(cuMemsetD8_v2(address, 1, kBytes) == CUDA_SUCCESS);
  REQUIRE(SHAREDGPU_REAL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK(!gate::capturing());
  arbiter.page().set_open(false);
  arbiter.say(Revoke{.epoch = {2}});
  released = std::async(std::launch::async, [&] { return arbiter.expect<Released>(); });
  CHECK(released.wait_for(100ms) == std::future_status::timeout);
  CHECK(SHAREDGPU_REAL(cuStreamEndCapture, stream, &graph) == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  CHECK(released.get().epoch == Epoch{2});

  // The capture mode of the program's threads is the mode that the program has set.
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
  beside(arbiter, [&] {
    CUcontext current = nullptr;
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    CUstreamCaptureMode own = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
    CHECK(cuThreadExchangeStreamCaptureMode(&own) == CUDA_SUCCESS);
    CUdeviceptr more = 0;
    CHECK(cuMemAlloc_v2(&more, 8 * kBytes) == CUDA_SUCCESS);
    CHECK(cuMemFree_v2(more) == CUDA_SUCCESS);
    CHECK(cuThreadExchangeStreamCaptureMode(&own) == CUDA_SUCCESS);
    CHECK(own == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    CHECK(cuCtxPopCurrent_v2(&current) == CUDA_SUCCESS);
  });
  CHECK(cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS);
  CHECK(mode == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  arbiter.refuse("the test is over");
}
