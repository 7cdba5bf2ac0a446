// SPDX-License-Identifier: Apache-2.0
// Creates and maps memory. Then makes the driver calls by which programs register memory with a network card,
// for a part of this memory, or exports this part and maps it a second time. Verifies every word of all of
// the memory.
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Clock = std::chrono::steady_clock;

CUmemAllocationProp properties(bool for_export) {
  CUmemAllocationProp wanted = {};
  if (for_export) wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.allocFlags.gpuDirectRDMACapable = 1;
  return wanted;
}

void allow(CUdeviceptr address, std::size_t bytes) {
  CUmemAccessDesc access = {};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  check(cuMemSetAccess(address, bytes, &access, 1), "cuMemSetAccess");
}

// Creates and maps `pieces` handles of `piece` bytes each, at consecutive addresses.
CUdeviceptr make_segment(std::size_t piece, unsigned pieces, bool for_export) {
  CUdeviceptr base = 0;
  check(cuMemAddressReserve(&base, pieces * piece, 0, 0, 0), "cuMemAddressReserve");
  const CUmemAllocationProp wanted = properties(for_export);
  for (CUdeviceptr at = base; at != base + pieces * piece; at += piece) {
    CUmemGenericAllocationHandle handle = 0;
    check(cuMemCreate(&handle, piece, &wanted, 0), "cuMemCreate");
    check(cuMemMap(at, piece, 0, handle, 0), "cuMemMap");
    check(cuMemRelease(handle), "cuMemRelease");
  }
  allow(base, pieces * piece);
  return base;
}

// Exports the handle at `address` in two threads at once, and maps both exports. Returns the two new
// addresses.
std::vector<CUdeviceptr> export_twice(CUcontext context, CUdeviceptr address, std::size_t piece) {
  CUmemGenericAllocationHandle handle = 0;
  check(cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(address)),
        "cuMemRetainAllocationHandle");
  std::vector<CUdeviceptr> mapped(2);
  std::vector<std::thread> threads;
  for (CUdeviceptr& at : mapped)
    threads.emplace_back([&] {
      use(context);
      int descriptor = -1;
      check(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
            "cuMemExportToShareableHandle");
      CUmemGenericAllocationHandle imported = 0;
      check(cuMemImportFromShareableHandle(&imported,
                                           reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                           CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
            "cuMemImportFromShareableHandle");
      close(descriptor);
      check(cuMemAddressReserve(&at, piece, 0, 0, 0), "cuMemAddressReserve");
      check(cuMemMap(at, piece, 0, imported, 0), "cuMemMap");
      check(cuMemRelease(imported), "cuMemRelease");
      allow(at, piece);
    });
  for (std::thread& thread : threads) thread.join();
  CUmemAllocationProp kind = {};
  check(cuMemGetAllocationPropertiesFromHandle(&kind, handle), "cuMemGetAllocationPropertiesFromHandle");
  if (kind.requestedHandleTypes != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) fail("wrong handle types");
  check(cuMemRelease(handle), "cuMemRelease");
  return mapped;
}

bool same(CUdeviceptr one, CUdeviceptr other, std::size_t bytes) {
  std::vector<std::byte> seen(bytes);
  std::vector<std::byte> wanted(bytes);
  check(cuMemcpyDtoH(seen.data(), one, bytes), "cuMemcpyDtoH");
  check(cuMemcpyDtoH(wanted.data(), other, bytes), "cuMemcpyDtoH");
  return std::memcmp(seen.data(), wanted.data(), bytes) == 0;
}

// Makes the driver call by which programs register memory with a network card in the way `how`. Some drivers
// do not support the older ways, "memops" and "tokens", for mapped memory; the program ignores their errors.
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
  CommandLine app("Shows memory that it has mapped itself to others, works on it, and verifies it.");
  std::size_t piece = 32 << 20;
  unsigned pieces = 4;
  unsigned shown = 2;
  double seconds = 3;
  std::string how = "dmabuf";
  app.add_option("--bytes", piece, "bytes of a piece, a multiple of 2 MiB");
  app.add_option("--pieces", pieces, "pieces of the range");
  app.add_option("--shown", shown, "of these, how many are shown, from the end of the range");
  app.add_option("--seconds", seconds, "how long to work");
  app.add_option("--how", how, "the way; with `handle` each piece is exported and mapped again")
      .one_of({"dmabuf", "memops", "tokens", "handle"});
  app.parse(argc, argv);

  const CUcontext context = start();
  Kernels kernels;
  const bool exports = how == "handle";
  const CUdeviceptr base = make_segment(piece, pieces, exports);
  const CUdeviceptr end = base + pieces * piece;
  const CUdeviceptr first = end - shown * piece;
  Buffer buffer(kernels, base, pieces * piece, 1);
  buffer.fill(nullptr);
  std::uint64_t steps = 0;
  buffer.step(steps++, nullptr);
  std::vector<std::vector<CUdeviceptr>> again;
  if (exports)
    for (CUdeviceptr at = first; at != end; at += piece) again.push_back(export_twice(context, at, piece));
  else
    show(first, shown * piece, how);
  std::printf("exported: %zu bytes are shown\n", shown * piece);
  std::fflush(stdout);
  for (const auto begin = Clock::now(); Clock::now() - begin < std::chrono::duration<double>(seconds);) {
    buffer.step(steps++, nullptr);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
  }
  if (!buffer.verify(steps, nullptr)) fail("its memory has changed");
  for (std::size_t i = 0; i < again.size(); ++i)
    for (const CUdeviceptr mapped : again[i])
      if (!same(mapped, first + i * piece, piece)) fail("the exported memory is not this memory");
  std::printf("exported: every byte verified\n");
  return 0;
}
