// SPDX-License-Identifier: Apache-2.0
// Prints the driver's answers about the device's memory, and checks that they are consistent.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

// Allocates `size` bytes in pieces of `piece` bytes, and then frees them. The last piece may be smaller.
void allocate(std::size_t size, std::size_t piece, const char* name) {
  std::vector<CUdeviceptr> pieces;
  for (std::size_t done = 0; done < size; done += piece) {
    pieces.emplace_back();
    check(cuMemAlloc(&pieces.back(), std::min(piece, size - done)), name);
  }
  for (const CUdeviceptr each : pieces) check(cuMemFree(each), "cuMemFree");
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Prints cuDeviceTotalMem and cuMemGetInfo, and checks them against what can be allocated.");
  std::string bytes = "25%";
  std::string host;
  bool all = false;
  app.add_option("--bytes", bytes, "what to allocate in between: a size, or a percentage");
  app.add_option("--host", host, "host memory that the program then uses, more than the GPU has");
  app.add_flag("--all", all, "also allocate all that is said to be free, in one piece and in many");
  app.parse(argc, argv);

  start();
  std::size_t device_total = 0, total = 0, before = 0, during = 0, after = 0;
  check(cuDeviceTotalMem(&device_total, 0), "cuDeviceTotalMem");
  check(cuMemGetInfo(nullptr, &total), "cuMemGetInfo");
  check(cuMemGetInfo(&before, nullptr), "cuMemGetInfo");
  std::size_t size = 0;
  try {
    size = parse_size(bytes, device_total);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  CUdeviceptr memory = 0;
  check(cuMemAlloc(&memory, size), "cuMemAlloc");
  check(cuMemGetInfo(&during, nullptr), "cuMemGetInfo");
  CUdeviceptr base = 0;
  std::size_t range = 0;
  check(cuMemGetAddressRange(&base, &range, memory + size / 2), "cuMemGetAddressRange");
  unsigned kind = 0;
  check(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), "cuPointerGetAttribute");
  check(cuMemFree(memory), "cuMemFree");
  check(cuMemGetInfo(&after, nullptr), "cuMemGetInfo");
  std::printf("total %zu\nfree_before %zu\nfree_during %zu\nfree_after %zu\n", device_total, before, during,
              after);

  if (total != device_total) fail("cuMemGetInfo and cuDeviceTotalMem tell different totals");
  if (before > total || during + size > before) fail("free memory does not go down by what is allocated");
  if (after < during + size) fail("free memory does not come back");
  if (base != memory || range != size) fail("cuMemGetAddressRange tells another range");
  if (kind != CU_MEMORYTYPE_DEVICE) fail("the pointer is not device memory");
  std::vector<char> used(host.empty() ? 0 : parse_size(host, 0), 1);
  if (!used.empty()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // the library may have older values
    check(cuMemGetInfo(&after, &total), "cuMemGetInfo");
    std::printf("free_beside_host %zu\n", after);
    if (total != device_total) fail("the total changes with the host memory that the program uses");
    if (after >= before) fail("free memory does not go down with the host memory that the program uses");
  }
  if (all) {
    const std::size_t free = after / kPage * kPage;
    allocate(free, free, "cuMemAlloc of all that is free");
    allocate(free, 5 * kPage, "cuMemAlloc of all that is free, in pieces");
  }
  return 0;
}
