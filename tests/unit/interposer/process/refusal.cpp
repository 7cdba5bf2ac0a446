// SPDX-License-Identifier: Apache-2.0
// An arbiter welcomes a process and then refuses its GPU: the process continues as with plain CUDA.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <future>
#include <string>

#include "tests/unit/interposer/support/scripted_arbiter.h"

using namespace sharedgpu;
using namespace std::chrono_literals;

TEST_CASE("a session whose GPU is refused runs as plain CUDA") {
  std::string socket = "/tmp/sharedgpu-refusal-test-" + std::to_string(getpid());
  setenv("SHAREDGPU_SOCKET", socket.c_str(), 1);
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  test::ScriptedArbiter arbiter(socket);
  arbiter.refuse_attach = true;
  REQUIRE(arbiter.begin([] { return cuInit(0); }, false) == CUDA_SUCCESS);  // the lease page is closed

  auto program = std::async(std::launch::async, [] {
    CUcontext context = nullptr;
    CUdeviceptr address = 0;
    unsigned char byte = 0;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    CHECK(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
    CHECK(cuMemAlloc_v2(&address, 1 << 20) == CUDA_SUCCESS);
    CHECK(cuMemsetD8_v2(address, 7, 1 << 20) == CUDA_SUCCESS);
    CHECK(cuMemcpyDtoH_v2(&byte, address + 99, 1) == CUDA_SUCCESS);
    CHECK(byte == 7);
    CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
  });
  arbiter.expect<Attach>();
  CHECK(program.wait_for(60s) == std::future_status::ready);
  CHECK(arbiter.attaches == 1);
}
