// SPDX-License-Identifier: Apache-2.0
// Creates and maps memory, and registers it with a network card in one of the possible ways. Holds the same
// amount of unregistered memory, and verifies every word of the registered and the unregistered memory.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Clock = std::chrono::steady_clock;

CUmemAllocationProp properties() {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.allocFlags.gpuDirectRDMACapable = 1;
  return wanted;
}

// Makes `pieces` pieces of `piece` bytes at consecutive addresses.
CUdeviceptr make_segment(std::size_t piece, unsigned pieces) {
  CUdeviceptr base = 0;
  check(cuMemAddressReserve(&base, pieces * piece, 0, 0, 0), "cuMemAddressReserve");
  const CUmemAllocationProp wanted = properties();
  for (CUdeviceptr at = base; at != base + pieces * piece; at += piece) {
    CUmemGenericAllocationHandle handle = 0;
    check(cuMemCreate(&handle, piece, &wanted, 0), "cuMemCreate");
    check(cuMemMap(at, piece, 0, handle, 0), "cuMemMap");
    check(cuMemRelease(handle), "cuMemRelease");
  }
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(base, pieces * piece, &access, 1), "cuMemSetAccess");
  return base;
}

// Registers the memory with a network card in the way `how`. Some drivers do not support the older ways,
// "memops" and "tokens", for mapped memory; the program ignores their errors.
void show(CUdeviceptr address, std::size_t bytes, const std::string& how) {
  if (how == "dmabuf") {
    int descriptor = -1;
    check(cuMemGetHandleForAddressRange(&descriptor, address, bytes, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
          "cuMemGetHandleForAddressRange");
  } else if (how == "memops") {
    const unsigned on = 1;
    cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address);
  } else {
    CUDA_POINTER_ATTRIBUTE_P2P_TOKENS tokens = {};
    cuPointerGetAttribute(&tokens, CU_POINTER_ATTRIBUTE_P2P_TOKENS, address);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Shows memory that it has mapped itself to a network card, works on it, and verifies it.");
  std::size_t piece = 32 << 20;
  unsigned pieces = 4;
  unsigned shown = 2;
  double seconds = 3;
  std::string how = "dmabuf";
  app.add_option("--bytes", piece, "bytes of a piece, a multiple of 2 MiB");
  app.add_option("--pieces", pieces, "pieces of the range");
  app.add_option("--shown", shown, "of these, how many are shown");
  app.add_option("--seconds", seconds, "how long to work");
  app.add_option("--how", how, "the way").one_of({"dmabuf", "memops", "tokens"});
  app.parse(argc, argv);

  start();
  Kernels kernels;
  const CUdeviceptr base = make_segment(piece, pieces);
  Buffer buffer(kernels, base, pieces * piece, 1);
  buffer.fill(nullptr);
  show(base, shown * piece, how);
  std::printf("exported: %zu bytes are shown\n", shown * piece);
  std::fflush(stdout);
  std::uint64_t steps = 0;
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::duration<double>(seconds);) {
    buffer.step(steps++, nullptr);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  if (!buffer.verify(steps, nullptr)) fail("its memory has changed");
  std::printf("exported: every byte verified\n");
  return 0;
}
