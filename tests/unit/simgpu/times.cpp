// SPDX-License-Identifier: Apache-2.0
// The modelled times that the simulated device counts: an access to host memory takes as long as a transfer
// over the bus.
#include "tests/programs/pattern.h"
#include "tests/simgpu/driver.h"
#include "tests/unit/simgpu/gpu.h"

namespace sharedgpu::simgpu_test {
namespace {

constexpr std::uint64_t kWords = kGranule / 8;

// Returns how long the device has computed for `work`, without launch times.
Nanoseconds time_of(unsigned kernels, const std::function<void()>& work) {
  const simgpu::Driver& d = simgpu::driver();
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  const Nanoseconds before = d.current_gpu().shared->meters().busy;
  work();
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  return d.current_gpu().shared->meters().busy - before - kernels * d.settings.launch;
}

Nanoseconds over_the_bus(std::size_t bytes) { return simgpu::driver().copy_time({bytes}); }
Nanoseconds on_the_device(std::size_t bytes) { return simgpu::driver().memory_time({bytes}); }

}  // namespace

TEST_CASE("A streaming kernel takes the time of the bus for operands on the host") {
  Gpu gpu;
  const Mapped here(kGranule);
  const Mapped away(kGranule, kOnHostNuma);
  const auto step = [&](CUdeviceptr memory) {
    const std::uint64_t iteration = 0;
    REQUIRE(gpu.launch("pattern_step", nullptr, {&memory, &kWords, &iteration}) == CUDA_SUCCESS);
  };
  CHECK(time_of(1, [&] { step(here.address); }) == on_the_device(2 * kGranule));
  CHECK(time_of(1, [&] { step(away.address); }) == over_the_bus(kGranule));
  CHECK(time_of(0, [&] { REQUIRE(cuMemsetD8(away.address, 1, kGranule) == CUDA_SUCCESS); }) ==
        over_the_bus(kGranule));
  here.empty();
  away.empty();
}

TEST_CASE("A product reads its operand again and again over the bus") {
  Gpu gpu;
  const Mapped here(kGranule);
  const Mapped also_here(kGranule);
  const Mapped away(kGranule, kOnHostNuma);
  const auto product = [&](CUdeviceptr memory, CUdeviceptr operand) {
    const std::uint64_t iteration = 0;
    REQUIRE(gpu.launch("pattern_product", nullptr, {&memory, &kWords, &operand, &kWords, &iteration}) ==
            CUDA_SUCCESS);
  };
  const Nanoseconds fast = time_of(1, [&] { product(here.address, also_here.address); });
  const Nanoseconds slow = time_of(1, [&] { product(here.address, away.address); });
  CHECK(slow == over_the_bus(pattern::kProductBlocks * kGranule));
  CHECK(slow > 90 * fast);
  // The kernel writes the result once.
  CHECK(time_of(1, [&] { product(away.address, here.address); }) == over_the_bus(kGranule));
  for (const Mapped* each : {&here, &also_here, &away}) each->empty();
}

TEST_CASE("Memory behind a table of pointers takes the time of the bus as well") {
  Gpu gpu;
  const Mapped here(kGranule);
  const Mapped away(kGranule, kOnHostNuma);
  const CUdeviceptr blocks[] = {here.address, away.address};
  CUdeviceptr table = 0;
  REQUIRE(cuMemAlloc(&table, sizeof blocks) == CUDA_SUCCESS);
  REQUIRE(cuMemcpyHtoD(table, blocks, sizeof blocks) == CUDA_SUCCESS);
  CHECK(
      time_of(1, [&] {
        const std::uint64_t count = 2;
        const std::uint64_t iteration = 0;
        REQUIRE(gpu.launch("pattern_hidden", nullptr, {&table, &count, &kWords, &iteration}) == CUDA_SUCCESS);
      }) == over_the_bus(kGranule));
  CHECK(word_at(here.address) == 1);
  CHECK(word_at(away.address + kGranule - 8) == 1);
  here.empty();
  away.empty();
}

TEST_CASE("A copy within the device's addresses crosses the bus if one side lies on the host") {
  Gpu gpu;
  const Mapped here(kGranule);
  const Mapped also_here(kGranule);
  const Mapped away(kGranule, kOnHostNuma);
  const auto copy = [](CUdeviceptr to, CUdeviceptr from) {
    return [=] { REQUIRE(cuMemcpyDtoD(to, from, kGranule) == CUDA_SUCCESS); };
  };
  const auto view = [] { return simgpu::driver().current_gpu().shared->view(); };
  CHECK(time_of(0, copy(also_here.address, here.address)) == on_the_device(2 * kGranule));
  const simgpu::DeviceView before = view();
  CHECK(time_of(0, copy(also_here.address, away.address)) == Nanoseconds{});  // the copy engines, not the
                                                                              // kernels, carry out the copy
  CHECK(time_of(0, copy(away.address, here.address)) == Nanoseconds{});
  CHECK(view().copied_in - before.copied_in == Bytes{kGranule});
  CHECK(view().copied_out - before.copied_out == Bytes{kGranule});
  for (const Mapped* each : {&here, &also_here, &away}) each->empty();
}

TEST_CASE("Only the part of a copy that lies on the host crosses the bus") {
  Gpu gpu;
  const Mapped target(2 * kGranule);
  const Mapped away(kGranule, kOnHostNuma);
  CUdeviceptr range = 0;
  REQUIRE(cuMemAddressReserve(&range, 2 * kGranule, 0, 0, 0) == CUDA_SUCCESS);
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  CUmemGenericAllocationHandle here = 0;
  REQUIRE(cuMemCreate(&here, kGranule, &properties, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(range, kGranule, 0, here, 0) == CUDA_SUCCESS);
  REQUIRE(cuMemMap(range + kGranule, kGranule, 0, away.handle, 0) == CUDA_SUCCESS);
  CUmemAccessDesc access = {};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  REQUIRE(cuMemSetAccess(range, 2 * kGranule, &access, 1) == CUDA_SUCCESS);
  const auto copied_in = [] { return simgpu::driver().current_gpu().shared->view().copied_in; };
  REQUIRE(cuMemsetD32(range, 3, 2 * kGranule / 4) == CUDA_SUCCESS);
  const Bytes before = copied_in();
  REQUIRE(cuMemcpyDtoD(target.address, range, 2 * kGranule) == CUDA_SUCCESS);
  REQUIRE(cuCtxSynchronize() == CUDA_SUCCESS);
  CHECK(copied_in() - before == Bytes{kGranule});
  CHECK(word_at(target.address) == 3);
  CHECK(word_at(target.address + 2 * kGranule - 4) == 3);
}

}  // namespace sharedgpu::simgpu_test
