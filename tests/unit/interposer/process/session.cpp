// SPDX-License-Identifier: Apache-2.0
// One process with an arbiter, from its first call to its end, on the simulated GPU. Tests the wrappers, the
// session, the gate and the memory together. A process has only one session, so all checks are in one test
// case.
#include <cuda.h>
#include <sys/uio.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "interposer/gate/closing.h"
#include "interposer/process/process.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

std::string socket_path() { return "/tmp/sharedgpu-session-test-" + std::to_string(getpid()); }

// Runs `work` on a thread of the program while the arbiter answers.
template <class Work>
auto beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  return result.get();
}

// Submits to the default streams by every name that they have. (Issue 21 of xsched: the default stream was
// not held back.) Each thread fills a byte of its own; the fills of two threads do not wait for each other.
std::vector<std::future<CUresult>> on_default_streams(CUcontext context, CUdeviceptr address) {
  using Fill = CUresult(CUdeviceptr, unsigned char, std::size_t, CUstream);
  struct Way {
    Fill* fill;
    CUstream stream;
  };
  std::vector<std::future<CUresult>> calls;
  for (Way way : {Way{cuMemsetD8Async, nullptr}, Way{cuMemsetD8Async, CU_STREAM_LEGACY},
                  Way{cuMemsetD8Async, CU_STREAM_PER_THREAD}, Way{cuMemsetD8Async_ptsz, nullptr}})
    calls.push_back(std::async(std::launch::async, [=, at = address + calls.size()] {
      cuCtxPushCurrent_v2(context);
      return way.fill(at, 0x11, 1, way.stream);
    }));
  calls.push_back(std::async(std::launch::async, [=, at = address + calls.size()] {
    cuCtxPushCurrent_v2(context);
    return cuMemsetD8_v2_ptds(at, 0x11, 1);
  }));
  return calls;
}

bool blocked(std::future<CUresult>& call) { return call.wait_for(100ms) == std::future_status::timeout; }

// Returns the first byte at the address, which is an address of this process; nullopt if the simulated GPU
// has no physical memory there.
std::optional<char> first_byte(CUdeviceptr address) {
  char byte = 0;
  iovec here = {.iov_base = &byte, .iov_len = 1};
  iovec there = {.iov_base = reinterpret_cast<void*>(address), .iov_len = 1};
  if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) != 1) return std::nullopt;
  return byte;
}

}  // namespace

TEST_CASE("a session from cuInit over turns and the arbiter's death to a refusal") {
  setenv("SHAREDGPU_SOCKET", socket_path().c_str(), 1);
  setenv("SHAREDGPU_ARBITER_TIMEOUT", "2000", 1);
  setenv("SIMGPU_MEMORY", "256MiB", 1);
  ScriptedArbiter arbiter(socket_path());
  arbiter.capacity = mebibytes(192);
  arbiter.allowed = mebibytes(192);
  arbiter.listen();

  // The session begins.
  auto init = std::async(std::launch::async, [] { return cuInit(0); });
  Hello hello = arbiter.accept();
  CHECK(hello.resuming == 0);
  arbiter.welcome(true, {1});
  REQUIRE(init.get() == CUDA_SUCCESS);
  CHECK(gate::held());

  // The first context attaches the session to the GPU. All queries of the GPU's size agree.
  CUcontext context = nullptr;
  REQUIRE(beside(arbiter, [&] { return cuDevicePrimaryCtxRetain(&context, 0); }) == CUDA_SUCCESS);
  CHECK(arbiter.attaches == 1);
  REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  std::size_t total = 0;
  REQUIRE(cuDeviceTotalMem_v2(&total, 0) == CUDA_SUCCESS);
  CHECK(total == mebibytes(192).count);
  std::size_t free = 0;
  auto in_context = [&](auto work) {
    return beside(arbiter, [&] {
      cuCtxPushCurrent_v2(context);
      return work();
    });
  };
  REQUIRE(in_context([&] { return cuMemGetInfo_v2(&free, nullptr); }) == CUDA_SUCCESS);
  CHECK(free == mebibytes(5).count);

  // Allocates memory, and works on it.
  const std::size_t bytes = mebibytes(96).count;
  CUdeviceptr address = 0;
  REQUIRE(in_context([&] { return cuMemAlloc_v2(&address, bytes); }) == CUDA_SUCCESS);
  std::vector<unsigned char> pattern(bytes);
  for (std::size_t i = 0; i < bytes; ++i) pattern[i] = static_cast<unsigned char>(i * 7 + i / 4096);
  REQUIRE(cuMemcpyHtoD_v2(address, pattern.data(), bytes) == CUDA_SUCCESS);

  arbiter.grant = false;
  CUdeviceptr refused = 0;
  CHECK(in_context([&] { return cuMemAlloc_v2(&refused, bytes); }) == CUDA_ERROR_OUT_OF_MEMORY);
  arbiter.grant = true;

  // Memory that is registered with a network card stays on the GPU.
  CUdeviceptr known = 0;
  REQUIRE(in_context([&] { return cuMemAlloc_v2(&known, mebibytes(40).count); }) == CUDA_SUCCESS);
  REQUIRE(cuMemsetD8_v2(known, 0x77, mebibytes(40).count) == CUDA_SUCCESS);
  int card = -1;
  REQUIRE(in_context([&] {
            return cuMemGetHandleForAddressRange(&card, known, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
          }) == CUDA_SUCCESS);
  arbiter.serve_until([&] { return arbiter.last_usage->use.pinned == mebibytes(40); });

  // On Prepare, the session allocates host memory, but not more than evictions may need.
  arbiter.say(Prepare{.host = mebibytes(128)});
  arbiter.serve_until([&] { return arbiter.last_usage->use.host == mebibytes(96); });

  for (std::uint64_t turn = 1; turn <= 3; ++turn) {
    // The turn ends, and the memory is evicted.
    arbiter.page().set_open(false);
    arbiter.say(Revoke{.epoch = {turn}, .order = turn});
    Released released = arbiter.expect<Released>();
    CHECK(released.epoch == Epoch{turn});
    CHECK(released.order == turn);
    CHECK(released.wants == 0);
    CHECK(released.use.resident == released.use.swappable);
    CHECK(!gate::held());

    // Growth that is granted after the turn brings no resident memory, since other tenants use the GPU.
    CUdeviceptr late = 0;
    REQUIRE(in_context([&] { return cuMemAlloc_v2(&late, mebibytes(24).count); }) == CUDA_SUCCESS);
    const Bytes grown = released.use.swappable + mebibytes(24);
    arbiter.serve_until([&] { return arbiter.last_usage->use.swappable == grown; });
    CHECK(arbiter.last_usage->use.resident == released.use.resident);
    REQUIRE(in_context([&] { return cuMemFree_v2(late); }) == CUDA_SUCCESS);

    // The session may submit once for other sessions of its tenant: waiting work is submitted and drained.
    auto forward = std::async(std::launch::async, [&] {
      cuCtxPushCurrent_v2(context);
      return cuMemsetD8_v2(address, pattern[0], 1);
    });
    arbiter.expect<Want>();
    CHECK(blocked(forward));
    for (std::uint64_t order = 10 * turn; forward.wait_for(0s) != std::future_status::ready; ++order) {
      arbiter.say(Step{.epoch = {turn}, .allowed = mebibytes(192), .order = order});
      released = arbiter.expect<Released>();
      CHECK(released.epoch == Epoch{turn});
      CHECK(released.order == order);
      CHECK(!gate::held());
    }
    CHECK(forward.get() == CUDA_SUCCESS);

    arbiter.last_usage.reset();
    arbiter.say(Evict{.allowed = {}});
    arbiter.serve_until([&] { return arbiter.last_usage && arbiter.last_usage->use.resident.count == 0; });

    CHECK(first_byte(known) == 0x77);
    CHECK(first_byte(address) == std::nullopt);

    // A submission waits at the gate; queries do not wait.
    arbiter.wants = 0;
    unsigned char last = 0;
    auto copy = std::async(std::launch::async, [&] {
      cuCtxPushCurrent_v2(context);
      return cuMemcpyDtoH_v2(&last, address + bytes - 1, 1);
    });
    arbiter.expect<Want>();
    CHECK(blocked(copy));
    auto defaults = on_default_streams(context, address);
    for (auto& call : defaults) CHECK(blocked(call));
    CUdeviceptr base = 0;
    std::size_t size = 0;
    CHECK(cuMemGetAddressRange_v2(&base, &size, address + 12345) == CUDA_SUCCESS);
    CHECK(base == address);
    CHECK(size == bytes);
    unsigned type = 0;
    CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1) == CUDA_SUCCESS);
    CHECK(type == CU_MEMORYTYPE_DEVICE);

    // The next turn begins when the memory has been restored.
    arbiter.say(Restore{.epoch = {turn + 1}, .allowed = mebibytes(192)});
    Ready ready = arbiter.expect<Ready>();
    CHECK(ready.epoch == Epoch{turn + 1});
    CHECK(ready.use.resident == ready.use.swappable);
    CHECK(blocked(copy));
    arbiter.page().set_open(true);
    CHECK(copy.get() == CUDA_SUCCESS);
    CHECK(last == pattern.back());
    for (auto& call : defaults) CHECK(call.get() == CUDA_SUCCESS);
    REQUIRE(cuMemcpyHtoD_v2(address, pattern.data(), defaults.size()) == CUDA_SUCCESS);
  }
  arbiter.say(Prepare{});
  arbiter.serve_until([&] { return arbiter.last_usage->use.host == Bytes{}; });
  close(card);
  CHECK(in_context([&] { return cuMemFree_v2(known); }) == CUDA_SUCCESS);
  arbiter.serve_until([&] { return arbiter.last_usage->use.pinned == Bytes{}; });
  std::vector<unsigned char> seen(bytes);
  REQUIRE(cuMemcpyDtoH_v2(seen.data(), address, bytes) == CUDA_SUCCESS);
  CHECK(seen == pattern);

  // While other tenants wait, an idle session reports its idleness.
  arbiter.page().set_contended(true);
  Idle idle = arbiter.expect<Idle>();
  CHECK(idle.epoch == Epoch{4});
  CHECK(idle.idle > 0ns);
  // The session does not report idleness while a thread exists that has used its per-thread default stream,
  // since no other thread can query this stream.
  arbiter.page().set_contended(false);
  std::promise<void> used;
  std::promise<void> over;
  std::thread per_thread([&] {
    cuCtxPushCurrent_v2(context);
    CHECK(cuMemsetD8_v2_ptds(address, pattern[0], 1) == CUDA_SUCCESS);
    used.set_value();
    over.get_future().wait();
  });
  used.get_future().wait();
  const auto serve_for = [&](auto time) {
    const auto end = std::chrono::steady_clock::now() + time;
    arbiter.serve_until([end] { return std::chrono::steady_clock::now() >= end; });
  };
  serve_for(200ms);  // earlier messages may not have arrived yet
  arbiter.idles = 0;
  arbiter.page().set_contended(true);
  serve_for(200ms);
  CHECK(arbiter.idles == 0);
  over.set_value();
  per_thread.join();
  arbiter.expect<Idle>();
  arbiter.page().set_contended(false);

  // The arbiter hangs in the session's turn: threads continue without an answer, and the session repeats the
  // request when the arbiter answers again. It also states the memory that the threads have got meanwhile.
  CUdeviceptr unasked[2] = {};
  auto alone = std::async(std::launch::async, [&] {
    cuCtxPushCurrent_v2(context);
    std::size_t some = 0;
    CHECK(cuMemAlloc_v2(&unasked[0], mebibytes(8).count) == CUDA_SUCCESS);
    CHECK(cuMemsetD8_v2(unasked[0], 0x11, mebibytes(8).count) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&unasked[1], mebibytes(40).count) == CUDA_SUCCESS);
    CHECK(cuMemGetInfo_v2(&some, nullptr) == CUDA_SUCCESS);
  });
  CHECK(alone.wait_for(60s) == std::future_status::ready);
  arbiter.queries = arbiter.claims = 0;
  arbiter.serve_until([&] { return arbiter.queries > 0 && arbiter.claims > 0; });
  arbiter.grant = false;
  CUresult asked = CUDA_SUCCESS;
  for (int i = 0; i < 600 && asked == CUDA_SUCCESS; ++i) {
    asked = in_context([&] { return cuMemAlloc_v2(&refused, bytes / 2); });
    if (asked == CUDA_SUCCESS) CHECK(in_context([&] { return cuMemFree_v2(refused); }) == CUDA_SUCCESS);
  }
  CHECK(asked == CUDA_ERROR_OUT_OF_MEMORY);
  arbiter.grant = true;
  for (CUdeviceptr block : unasked) CHECK(in_context([&] { return cuMemFree_v2(block); }) == CUDA_SUCCESS);

  // A claim (a request whose answer no thread awaits) is repeated if a thread requests growth at the same
  // time.
  CUdeviceptr beside = 0;
  auto grows = std::async(std::launch::async, [&] {
    cuCtxPushCurrent_v2(context);
    return cuMemAlloc_v2(&beside, mebibytes(8).count);
  });
  CHECK(blocked(grows));
  arbiter.claims = 0;
  process::session_of(0)->claim();
  arbiter.serve_until([&] { return arbiter.claims == 2; });
  CHECK(grows.get() == CUDA_SUCCESS);
  CHECK(in_context([&] { return cuMemFree_v2(beside); }) == CUDA_SUCCESS);

  // The arbiter dies in the session's turn: the program continues, and the next arbiter answers its requests.
  arbiter.die();
  REQUIRE(cuMemsetD8_v2(address, 0x5a, bytes) == CUDA_SUCCESS);
  CUdeviceptr more = 0;
  auto allocation = std::async(std::launch::async, [&] {
    cuCtxPushCurrent_v2(context);
    return cuMemAlloc_v2(&more, mebibytes(40).count);
  });
  CHECK(blocked(allocation));
  arbiter.listen();
  hello = arbiter.accept();
  CHECK(hello.resuming == 1);
  CHECK(hello.held == 1);
  CHECK(hello.epoch == Epoch{4});
  arbiter.attaches = 0;
  arbiter.welcome(true, {4});
  arbiter.serve_until([&] { return allocation.wait_for(0s) == std::future_status::ready; });
  CHECK(allocation.get() == CUDA_SUCCESS);
  CHECK(arbiter.attaches == 1);
  CHECK(in_context([&] { return cuMemFree_v2(more); }) == CUDA_SUCCESS);

  // The arbiter dies between two turns of the session: a thread that waits at the gate continues to wait.
  arbiter.page().set_open(false);
  arbiter.say(Revoke{.epoch = {4}});
  arbiter.expect<Released>();
  auto fill = std::async(std::launch::async, [&] {
    cuCtxPushCurrent_v2(context);
    return cuMemsetD8_v2(address, 0xa5, bytes);
  });
  arbiter.expect<Want>();
  arbiter.die();
  CHECK(blocked(fill));
  arbiter.listen();
  hello = arbiter.accept();
  CHECK(hello.held == 0);
  CHECK(hello.wants == 1);

  // The next arbiter refuses the session: all memory is restored, and the process uses plain CUDA.
  arbiter.refuse("the test is over");
  CHECK(fill.get() == CUDA_SUCCESS);
  REQUIRE(cuMemcpyDtoH_v2(seen.data(), address, bytes) == CUDA_SUCCESS);
  CHECK(seen == std::vector<unsigned char>(bytes, 0xa5));
}
