// SPDX-License-Identifier: Apache-2.0
// Manages virtual memory as a caching allocator with expandable segments does: in one long range of
// addresses, the part with memory grows and shrinks by one handle at a time. Each handle is released as soon
// as it is mapped, or much later.
#include <cstdio>
#include <deque>
#include <thread>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

CUmemAllocationProp properties() {
  CUmemAllocationProp wanted = {};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  return wanted;
}

// A range of addresses. Its front part has physical memory, in handles of equal size.
class Segment {
 public:
  Segment(std::size_t piece, std::size_t pieces, bool release_at_once)
      : piece_(piece), whole_(piece * pieces), release_at_once_(release_at_once) {
    check(cuMemAddressReserve(&base_, whole_, 0, 0, 0), "cuMemAddressReserve");
  }
  CUdeviceptr end() const { return base_ + handles_.size() * piece_; }

  // Maps one more handle, and returns its address.
  CUdeviceptr grow() {
    const CUmemAllocationProp wanted = properties();
    CUmemGenericAllocationHandle handle = 0;
    check(cuMemCreate(&handle, piece_, &wanted, 0), "cuMemCreate");
    const CUdeviceptr at = end();
    check(cuMemMap(at, piece_, 0, handle, 0), "cuMemMap");
    if (release_at_once_) check(cuMemRelease(handle), "cuMemRelease");
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    check(cuMemSetAccess(at, piece_, &access, 1), "cuMemSetAccess");
    handles_.push_back(handle);
    return at;
  }

  void shrink() {
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    const CUmemGenericAllocationHandle handle = handles_.back();
    handles_.pop_back();
    check(cuMemUnmap(end(), piece_), "cuMemUnmap");
    if (!release_at_once_) check(cuMemRelease(handle), "cuMemRelease");
  }

  void free() {
    while (!handles_.empty()) shrink();
    check(cuMemAddressFree(base_, whole_), "cuMemAddressFree");
  }

 private:
  std::size_t piece_;
  std::size_t whole_;
  bool release_at_once_;
  CUdeviceptr base_ = 0;
  std::deque<CUmemGenericAllocationHandle> handles_;
};

// A reference from cuMemRetainAllocationHandle keeps the memory allocated after the memory is unmapped.
void find_again(std::size_t bytes) {
  Segment segment(bytes, 1, true);
  const CUdeviceptr at = segment.grow();
  CUmemGenericAllocationHandle again = 0;
  check(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(at)), "cuMemRetainAllocationHandle");
  segment.free();
  check(cuMemRelease(again), "cuMemRelease");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Grows and shrinks ranges of its own virtual memory, and verifies them.");
  std::size_t bytes = 10 << 20;
  unsigned pieces = 6;
  unsigned rounds = 3;
  double seconds = 0;
  app.add_option("--bytes", bytes, "bytes of a piece, a multiple of 2 MiB");
  app.add_option("--pieces", pieces, "pieces of a range").positive();
  app.add_option("--rounds", rounds, "times to grow and shrink");
  app.add_option("--hold", seconds, "seconds to keep the last range for");
  app.parse(argc, argv);

  start();
  Kernels kernels;
  for (unsigned round = 0; round < rounds; ++round) {
    Segment segment(bytes, pieces, round % 2 == 0);
    std::deque<Buffer> buffers;
    while (buffers.size() < pieces) {
      buffers.emplace_back(kernels, segment.grow(), bytes, round * 100 + buffers.size());
      buffers.back().fill(nullptr);
      if (buffers.size() == pieces / 2) {  // unmaps one handle, as an allocator that empties its cache does
        buffers.pop_back();
        segment.shrink();
        buffers.emplace_back(kernels, segment.grow(), bytes, round * 100 + buffers.size());
        buffers.back().fill(nullptr);
      }
    }
    for (Buffer& buffer : buffers) buffer.step(0, nullptr);
    for (Buffer& buffer : buffers)
      if (!buffer.verify(1, nullptr)) fail("a piece lost its contents");
    segment.free();
  }
  find_again(bytes);
  Segment last(bytes, pieces, true);
  for (unsigned i = 0; i < pieces; ++i) last.grow();
  std::printf("vmm: %u rounds verified\n", rounds);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  last.free();
  std::printf("vmm: all given back\n");
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  return 0;
}
