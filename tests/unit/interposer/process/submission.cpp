// SPDX-License-Identifier: Apache-2.0
// Tests submissions while the simulated GPU is oversubscribed, with an arbiter. The library limits the
// backlogs of all streams and threads, and never disturbs a capture.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interposer/backlog/queues.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using test::ScriptedArbiter;

namespace {

constexpr std::size_t kBytes = 1 << 20;  // a fill takes 1 ms
constexpr int kPlaces = 13;              // number of places; each concurrent stream fills its own place

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(std::chrono::seconds(0)) == std::future_status::ready; });
  result.get();
}

CUstream new_stream() {
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  return stream;
}

void fill(CUdeviceptr memory, CUstream stream, int times) {
  for (int i = 0; i < times; ++i)
    CHECK(cuMemsetD8Async(memory, static_cast<unsigned char>(i), kBytes, stream) == CUDA_SUCCESS);
}

// Returns true if the first `done` fills have ended when the last fill is submitted.
bool ends_on_the_way(CUdeviceptr memory, CUstream stream, int times, int done) {
  CUevent event = nullptr;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS);
  fill(memory, stream, done);
  CHECK(cuEventRecord(event, stream) == CUDA_SUCCESS);
  fill(memory, stream, times - done);
  const bool ended = cuEventQuery(event) == CUDA_SUCCESS;
  CHECK(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(cuEventDestroy_v2(event) == CUDA_SUCCESS);
  return ended;
}

}  // namespace

TEST_CASE("while the GPU is oversubscribed no stream has much queued") {
  const std::string socket = "/tmp/sharedgpu-submission-test-" + std::to_string(getpid());
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  setenv("SIMGPU_BANDWIDTH", "1", 1);
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  ScriptedArbiter arbiter(socket);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  CUdeviceptr memory = 0;
  beside(arbiter, [&] {
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&memory, kPlaces * kBytes) == CUDA_SUCCESS);
  });
  REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  const CUstream stream = new_stream();

  arbiter.page().set_oversubscribed(true);
  for (CUstream each : {stream, static_cast<CUstream>(nullptr), CU_STREAM_LEGACY, CU_STREAM_PER_THREAD})
    CHECK(ends_on_the_way(memory, each, 200, 140));

  // The arbiter can set a smaller limit.
  arbiter.page().set_oversubscribed(true, std::chrono::milliseconds(2));
  CHECK(ends_on_the_way(memory, stream, 200, 180));
  arbiter.page().set_oversubscribed(true);

  // Several threads submit at once, each thread to its own stream and to a stream that all threads share.
  auto place = [&](std::size_t i) { return memory + i * kBytes; };
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
      const CUstream own = new_stream();
      for (int round = 0; round < 20; ++round) {
        fill(place(1 + i), own, 2);
        fill(memory, stream, 1);
        fill(place(4 + i), CU_STREAM_PER_THREAD, 1);
      }
      CHECK(cuStreamDestroy_v2(own) == CUDA_SUCCESS);  // the stream has unfinished work
    });

  // Meanwhile another thread captures, in the mode that forbids unsafe calls to all threads.
  const CUstream captured = new_stream();
  for (int i = 0; i < 20; ++i) {
    CUgraph graph = nullptr;
    REQUIRE(cuStreamBeginCapture_v2(captured, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
    fill(memory, captured, 100);
    CHECK(cuStreamEndCapture(captured, &graph) == CUDA_SUCCESS);
    std::size_t nodes = 0;
    CHECK(cuGraphGetNodes(graph, nullptr, &nodes) == CUDA_SUCCESS);
    CHECK(nodes == 100);  // the library has added no event of its own
    CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(cuCtxSynchronize() == CUDA_SUCCESS);  // waits, since these fills write to the same place as the next
                                              // fills

  // A per-thread stream and the library's record of its backlog end with the thread.
  StreamId of_thread;
  std::thread([&] {
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    fill(memory, CU_STREAM_PER_THREAD, 2);
    CHECK(backlog::queue_of(CU_STREAM_PER_THREAD, &of_thread) != nullptr);
    CHECK(backlog::known_queue(of_thread) != nullptr);
  }).join();
  CHECK(backlog::known_queue(of_thread) == nullptr);

  // A thread uses more streams than the library remembers for a thread. The context of these streams is then
  // destroyed together with the streams.
  CUcontext other = nullptr;
  beside(arbiter, [&] {
    CUcontext popped = nullptr;
    CHECK(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
    CHECK(cuCtxPopCurrent_v2(&popped) == CUDA_SUCCESS);
  });
  REQUIRE(cuCtxPushCurrent_v2(other) == CUDA_SUCCESS);
  std::vector<CUstream> many;
  for (int i = 0; i < 6; ++i) many.push_back(new_stream());
  for (int round = 0; round < 20; ++round)
    for (std::size_t i = 0; i < many.size(); ++i) fill(place(7 + i), many[i], 1);
  CHECK(cuCtxPopCurrent_v2(&other) == CUDA_SUCCESS);
  beside(arbiter, [&] { CHECK(cuCtxDestroy_v2(other) == CUDA_SUCCESS); });

  arbiter.page().set_oversubscribed(false);
  CHECK(!ends_on_the_way(memory, stream, 400, 399));
  arbiter.refuse("the test is over");
}
