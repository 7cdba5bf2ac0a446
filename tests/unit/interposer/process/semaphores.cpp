// SPDX-License-Identifier: Apache-2.0
// Tests external semaphores, by which streams and other APIs wait for each other. Operations on semaphores
// pass the gate, and a stream that waits for a semaphore counts as busy.
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interposer/gate/closing.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

// Every cuda.h declares these variants, but only for programs with per-thread default streams.
extern "C" {
CUresult CUDAAPI cuSignalExternalSemaphoresAsync_ptsz(const CUexternalSemaphore*,
                                                      const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS*,
                                                      unsigned int, CUstream);
CUresult CUDAAPI cuWaitExternalSemaphoresAsync_ptsz(const CUexternalSemaphore*,
                                                    const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS*, unsigned int,
                                                    CUstream);
}

namespace {

template <class Work>
auto beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  return result.get();
}

// The other user of a timeline semaphore. On the simulated GPU, the semaphore is a file.
struct Timeline {
  Timeline() {
    const int file = memfd_create("timeline", MFD_CLOEXEC);
    REQUIRE(file >= 0);
    REQUIRE(ftruncate(file, sizeof *value) == 0);
    void* mapped = mmap(nullptr, sizeof *value, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    REQUIRE(mapped != MAP_FAILED);
    value = static_cast<std::uint64_t*>(mapped);
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC wanted = {};
    wanted.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    wanted.handle.fd = file;
    REQUIRE(cuImportExternalSemaphore(&handle, &wanted) == CUDA_SUCCESS);
  }
  std::uint64_t now() const { return std::atomic_ref(*value).load(); }
  void set(std::uint64_t to) const { std::atomic_ref(*value).store(to); }

  CUresult signal(std::uint64_t to, CUstream stream, bool own) const {
    CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS parameters = {};
    parameters.params.fence.value = to;
    return (own ? cuSignalExternalSemaphoresAsync_ptsz : cuSignalExternalSemaphoresAsync)(
        &handle, &parameters, 1, stream);
  }
  CUresult wait(std::uint64_t until, CUstream stream, bool own) const {
    CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS parameters = {};
    parameters.params.fence.value = until;
    return (own ? cuWaitExternalSemaphoresAsync_ptsz : cuWaitExternalSemaphoresAsync)(&handle, &parameters, 1,
                                                                                      stream);
  }

  CUexternalSemaphore handle = nullptr;
  std::uint64_t* value = nullptr;
};

bool blocked(std::future<CUresult>& call) { return call.wait_for(100ms) == std::future_status::timeout; }

}  // namespace

TEST_CASE("external semaphores pass the gate, and a turn ends only when what waits for one has ended") {
  const std::string socket = "/tmp/sharedgpu-semaphores-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  ScriptedArbiter arbiter(socket);
  REQUIRE(arbiter.begin([] { return cuInit(0); }) == CUDA_SUCCESS);
  CUcontext context = nullptr;
  REQUIRE(beside(arbiter, [&] { return cuDevicePrimaryCtxRetain(&context, 0); }) == CUDA_SUCCESS);
  REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  const Timeline timeline;
  CUstream stream = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);

  // While the gate is open, a stream waits for a value that the other user signals, and then signals the next
  // value itself.
  REQUIRE(timeline.wait(1, stream, false) == CUDA_SUCCESS);
  REQUIRE(timeline.signal(2, stream, false) == CUDA_SUCCESS);
  CHECK(cuStreamQuery(stream) == CUDA_ERROR_NOT_READY);
  // A stream that waits for a semaphore is not idle.
  arbiter.page().set_contended(true);
  arbiter.serve_until(
      [end = std::chrono::steady_clock::now() + 200ms] { return std::chrono::steady_clock::now() >= end; });
  CHECK(arbiter.idles == 0);
  timeline.set(1);
  arbiter.expect<Idle>();
  arbiter.page().set_contended(false);
  REQUIRE(cuStreamSynchronize(stream) == CUDA_SUCCESS);
  CHECK(timeline.now() == 2);

  // The turn ends while a stream waits for a value that the other user signals.
  REQUIRE(timeline.wait(3, stream, true) == CUDA_SUCCESS);
  std::atomic<bool> signalled{false};
  arbiter.page().set_open(false);
  arbiter.say(Revoke{.epoch = {1}, .order = 1});
  std::thread outside([&] {
    std::this_thread::sleep_for(200ms);
    signalled = true;
    timeline.set(3);
  });
  arbiter.expect<Released>();
  CHECK(signalled);
  outside.join();
  CHECK(!gate::held());

  // While the gate is closed, no wait and no signal passes, in any stream.
  std::vector<std::future<CUresult>> calls;
  for (const bool own : {false, true})
    for (const CUstream each : {stream, static_cast<CUstream>(nullptr)}) {
      calls.push_back(std::async(std::launch::async, [=, &timeline] {
        cuCtxPushCurrent_v2(context);
        return timeline.signal(4, each, own);
      }));
      calls.push_back(std::async(std::launch::async, [=, &timeline] {
        cuCtxPushCurrent_v2(context);
        return timeline.wait(1, each, own);
      }));
    }
  for (auto& call : calls) CHECK(blocked(call));
  CHECK(timeline.now() == 3);
  arbiter.page().set_open(true);
  arbiter.serve_until([&] { return timeline.now() == 4; });
  for (auto& call : calls) CHECK(call.get() == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(cuDestroyExternalSemaphore(timeline.handle) == CUDA_SUCCESS);
  arbiter.refuse("the test is over");
}
