// SPDX-License-Identifier: Apache-2.0
// The program itself creates and maps memory, as PyTorch's expandable segments do. Handles are mapped and
// unmapped in one long range of addresses, and a handle is mapped at two addresses. Some references to
// handles are released before the handle is unmapped, and some after that. With --host every second handle is
// memory of the host. Verifies every word.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

using Handle = CUmemGenericAllocationHandle;
using Clock = std::chrono::steady_clock;

constexpr auto kDevice = CU_MEM_LOCATION_TYPE_DEVICE;
constexpr auto kHost = static_cast<CUmemLocationType>(2);  // CU_MEM_LOCATION_TYPE_HOST, of CUDA 12.2
constexpr auto kHostNumaCurrent = static_cast<CUmemLocationType>(4);  // for prefetches only
constexpr auto kHostNuma = static_cast<CUmemLocationType>(3);         // CU_MEM_LOCATION_TYPE_HOST_NUMA

CUmemAllocationProp kind_of(CUmemLocationType where, bool exportable) {
  CUmemAllocationProp kind = {};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location.type = where;
  if (exportable) kind.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return kind;
}

// Gives access to the device, and to the host if the memory is host memory.
void allow(CUdeviceptr address, std::size_t size, CUmemLocationType where, CUmemAccess_flags flags) {
  CUmemAccessDesc access[2] = {};
  access[0].location.type = kDevice;
  access[1].location.type = where;
  access[0].flags = access[1].flags = flags;
  check(cuMemSetAccess(address, size, access, where == kDevice ? 1 : 2), "cuMemSetAccess");
}

void expect(bool right, const char* what) {
  if (!right) fail(what);
}

// A part of the segment that has one handle.
struct Slot {
  CUdeviceptr address = 0;
  CUmemLocationType where = kDevice;
  Handle handle = 0;
  std::vector<Buffer> buffer;  // empty: nothing is mapped in this slot
  std::uint64_t since = 0;     // the iteration that filled the slot
};

class Segment {
 public:
  Segment(const Kernels& kernels, std::size_t slots, std::size_t size, bool exportable, bool host)
      : kernels_(kernels), size_(size), exportable_(exportable), slots_(slots) {
    check(cuMemAddressReserve(&base_, slots * size, 0, 0, 0), "cuMemAddressReserve");
    for (std::size_t i = 0; i < slots; ++i) {
      slots_[i].address = base_ + i * size;
      if (host && i % 2 != 0) slots_[i].where = i % 4 == 1 ? kHost : kHostNuma;
    }
  }

  void fill(std::size_t i, std::uint64_t iteration) {
    Slot& slot = slots_[i];
    const CUmemAllocationProp kind = kind_of(slot.where, exportable_ && slot.where == kDevice);
    check(cuMemCreate(&slot.handle, size_, &kind, 0), "cuMemCreate");
    check(cuMemMap(slot.address, size_, 0, slot.handle, 0), "cuMemMap");
    allow(slot.address, size_, slot.where, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (i / 2 % 2 == 0) check(cuMemRelease(slot.handle), "cuMemRelease");  // the mapping keeps the memory
    slot.buffer.emplace_back(kernels_, slot.address, size_, i + 1);
    slot.buffer.back().fill(nullptr);
    slot.since = iteration;
  }

  // Verifies the slot's memory and then unmaps it.
  void empty(std::size_t i, std::uint64_t iteration) {
    Slot& slot = slots_[i];
    verify(i, iteration);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    check(cuMemUnmap(slot.address, size_), "cuMemUnmap");
    if (i / 2 % 2 != 0) check(cuMemRelease(slot.handle), "cuMemRelease");
    slot.buffer.clear();
  }

  void verify(std::size_t i, std::uint64_t iteration) {
    Slot& slot = slots_[i];
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    if (!slot.buffer.front().verify(iteration - slot.since, nullptr)) fail("a slot has changed");
    if (slot.where == kDevice) return;
    std::vector<std::byte> seen(size_);
    check(cuMemcpyDtoH(seen.data(), slot.address, size_), "cuMemcpyDtoH");
    expect(std::memcmp(reinterpret_cast<void*>(slot.address), seen.data(), size_) == 0,
           "the host sees something else in its memory than the device");
  }

  // Gets a reference to the handle from its address, and maps the handle at a second address.
  void look_twice(std::size_t i, std::uint64_t iteration) {
    Slot& slot = slots_[i];
    Handle again = 0;
    check(cuMemRetainAllocationHandle(&again, reinterpret_cast<void*>(slot.address + size_ / 2)),
          "cuMemRetainAllocationHandle");
    CUmemAllocationProp kind = {};
    check(cuMemGetAllocationPropertiesFromHandle(&kind, again), "cuMemGetAllocationPropertiesFromHandle");
    expect(kind.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
               (kind.location.type == kDevice) == (slot.where == kDevice) && kind.location.id == 0,
           "wrong properties");
    CUdeviceptr second = 0;
    check(cuMemAddressReserve(&second, size_, 0, 0, 0), "cuMemAddressReserve");
    check(cuMemMap(second, size_, 0, again, 0), "cuMemMap");
    expect(cuMemMap(second, size_, 0, again, 0) == CUDA_ERROR_INVALID_VALUE, "mapped twice at one address");
    expect(cuMemMap(second, size_ / 2, 0, again, 0) == CUDA_ERROR_NOT_SUPPORTED, "mapped a part");
    expect(cuMemMap(second, size_ / 2, size_ / 2, again, 0) == CUDA_ERROR_NOT_SUPPORTED,
           "mapped with an offset");
    allow(second, size_, slot.where, CU_MEM_ACCESS_FLAGS_PROT_READ);
    unsigned long long flags = 0;
    CUmemLocation here = {};
    here.type = kDevice;
    check(cuMemGetAccess(&flags, &here, second), "cuMemGetAccess");
    expect(flags == CU_MEM_ACCESS_FLAGS_PROT_READ, "wrong access");
    const Buffer other(kernels_, second, size_, i + 1);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    if (!other.verify(iteration - slot.since, nullptr)) fail("the second address shows something else");
    check(cuMemUnmap(second, size_), "cuMemUnmap");
    check(cuMemAddressFree(second, size_), "cuMemAddressFree");
    check(cuMemRelease(again), "cuMemRelease");
  }

  // Runs one iteration on the memory of each slot.
  void step(std::uint64_t iteration) {
    for (Slot& slot : slots_)
      if (!slot.buffer.empty()) slot.buffer.front().step(iteration - slot.since, nullptr);
  }

  std::size_t size() const { return slots_.size(); }
  void free() { check(cuMemAddressFree(base_, slots_.size() * size_), "cuMemAddressFree"); }

 private:
  const Kernels& kernels_;
  const std::size_t size_;
  const bool exportable_;
  CUdeviceptr base_ = 0;
  std::vector<Slot> slots_;
};

void run(std::size_t bytes, double seconds, bool exportable, bool host) {
  start();
  Kernels kernels;
  const CUmemAllocationProp kind = kind_of(kDevice, exportable);
  std::size_t granularity = 0;
  check(cuMemGetAllocationGranularity(&granularity, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity");
  constexpr std::size_t kSlots = 8;
  const std::size_t size = bytes / kSlots / granularity * granularity;
  Segment segment(kernels, kSlots, size, exportable, host);
  Handle handle = 0;
  expect(cuMemCreate(&handle, size + 1, &kind, 0) == CUDA_ERROR_INVALID_VALUE, "a crooked size was taken");
  const CUmemAllocationProp nowhere = kind_of(kHostNumaCurrent, false);
  expect(!host || cuMemCreate(&handle, size, &nowhere, 0) == CUDA_ERROR_INVALID_VALUE,
         "memory was made on no certain node");

  const auto begin = Clock::now();
  auto elapsed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t iteration = 0;
  for (std::size_t i = 0; i < kSlots; ++i) segment.fill(i, iteration);
  for (; elapsed() < seconds; ++iteration) {
    segment.step(iteration);
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    if (iteration % 5 != 4) continue;
    const std::size_t chosen = iteration / 5 % kSlots;
    segment.look_twice((chosen + 3) % kSlots, iteration + 1);
    segment.empty(chosen, iteration + 1);
    segment.fill(chosen, iteration + 1);
  }
  for (std::size_t i = 0; i < kSlots; ++i) segment.empty(i, iteration);
  segment.free();
  std::printf("own_memory: %llu iterations over %zu bytes, every byte verified\n",
              static_cast<unsigned long long>(iteration), size * kSlots);
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Makes and maps device memory itself, changes it, and verifies it.");
  std::string bytes = "192MiB";
  double seconds = 5;
  bool exportable = false;
  bool host = false;
  app.add_option("--bytes", bytes, "memory to hold");
  app.add_option("--seconds", seconds, "how long to work").positive();
  app.add_flag("--exportable", exportable, "make it so that it could be exported");
  app.add_flag("--host", host, "make every second handle of host memory");
  app.parse(argc, argv);
  return status_of([&] { run(parse_size(bytes, 0), seconds, exportable, host); });
}
