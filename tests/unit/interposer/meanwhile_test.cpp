// SPDX-License-Identifier: Apache-2.0
// What other threads do in the middle of a call to the driver, on the simulated GPU with an arbiter: what the
// books say of it holds at every moment.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>

#include "interposer/driver/call.h"
#include "interposer/hooks/pools.h"
#include "interposer/session/session.h"
#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;
using test::ScriptedArbiter;

namespace {

template <class Work>
void beside(ScriptedArbiter& arbiter, Work work) {
  auto result = std::async(std::launch::async, work);
  arbiter.serve_until([&] { return result.wait_for(0s) == std::future_status::ready; });
  result.get();
}

Bytes pinned() { return session::memory_of(0)->use().pinned; }

CUmemoryPool new_pool() {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemoryPool pool = nullptr;
  CHECK(cuMemPoolCreate(&pool, &properties) == CUDA_SUCCESS);
  return pool;
}

// Memory of a pool that can be shared is claimed before it is there.
void claims_for_pools() {
  const CUmemoryPool pool = new_pool();
  auto allocate = [=](auto meanwhile) {
    CUdeviceptr address = 0;
    CHECK(hooks::pools().allocate_pinned(&address, mebibytes(8), pool, [&] {
      meanwhile();
      return SHAREDGPU_REAL(cuMemAllocFromPoolAsync, &address, mebibytes(8).count, pool, nullptr);
    }) == CUDA_SUCCESS);
    return address;
  };
  CUdeviceptr second = 0;
  const CUdeviceptr first = allocate([&] {
    hooks::pools().tend();
    CHECK(pinned() == mebibytes(8));
    second = allocate([] { CHECK(pinned() == mebibytes(16)); });
    CHECK(pinned() == mebibytes(16));
  });
  CHECK(pinned() == mebibytes(16));
  CHECK(cuMemFree_v2(first) == CUDA_SUCCESS);
  CHECK(pinned() == mebibytes(8));
  CHECK(cuMemFree_v2(second) == CUDA_SUCCESS);
  CHECK(pinned() == Bytes{});
  CHECK(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
}

}  // namespace

TEST_CASE("the books hold while threads are in the middle of driver calls") {
  const std::string socket = "/tmp/sharedgpu-meanwhile-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "96MiB", 1);
  setenv("SIMGPU_BANDWIDTH", "1", 1);
  ScriptedArbiter arbiter(socket);
  arbiter.capacity = arbiter.allowed = mebibytes(48);
  arbiter.listen();
  auto init = std::async(std::launch::async, [] { return cuInit(0); });
  arbiter.accept();
  arbiter.welcome(true, {1});
  REQUIRE(init.get() == CUDA_SUCCESS);
  beside(arbiter, [] {
    CUcontext context = nullptr;
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    claims_for_pools();
  });
  arbiter.refuse("the test is over");
}
