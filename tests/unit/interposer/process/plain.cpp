// SPDX-License-Identifier: Apache-2.0
// Without an arbiter, the library creates no process object (interposer/process), and CUDA behaves as without
// the library.
#include <cuda.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

#include "interposer/gate/captures.h"
#include "interposer/process/process.h"

using namespace sharedgpu;

namespace {

void captures_count_for_nobody() {
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  CHECK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS);
  CHECK_FALSE(gate::capturing());
  CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  CHECK(cuGraphDestroy(graph) == CUDA_SUCCESS);
  CHECK(cuStreamDestroy_v2(stream) == CUDA_SUCCESS);
}

void memory_of_a_lender_is_out_of_reach() {
  shared_memory::IpcTicket ticket;
  ticket.mapped = ticket.size = mebibytes(2);
  CUdeviceptr address = 0;
  CHECK(cuIpcOpenMemHandle_v2(&address, shared_memory::handle_of(ticket),
                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_MAP_FAILED);
}

}  // namespace

TEST_CASE("without an arbiter there is no process object") {
  setenv("SHAREDGPU_SOCKET", ("/tmp/sharedgpu-plain-test-" + std::to_string(getpid())).c_str(), 1);
  setenv("SHAREDGPU_ARBITER_TIMEOUT", "0", 1);
  setenv("SIMGPU_MEMORY", "64MiB", 1);
  REQUIRE(cuInit(0) == CUDA_SUCCESS);
  CHECK(Process::get() == nullptr);
  CHECK(cuInit(0) == CUDA_SUCCESS);

  CUcontext context = nullptr;
  CUdeviceptr address = 0;
  REQUIRE(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  REQUIRE(cuCtxPushCurrent_v2(context) == CUDA_SUCCESS);
  REQUIRE(cuMemAlloc_v2(&address, 1 << 20) == CUDA_SUCCESS);
  CHECK(process::current_memory() == nullptr);
  CHECK_FALSE(process::find(address));
  CHECK(cuMemFree_v2(address) == CUDA_SUCCESS);
  captures_count_for_nobody();
  memory_of_a_lender_is_out_of_reach();
  CHECK(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
  CHECK(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS);
  CHECK(Process::get() == nullptr);
}
