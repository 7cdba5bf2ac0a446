// SPDX-License-Identifier: Apache-2.0
// Every single call to the driver fails once, and then any two that follow one another: whatever the
// moment, no byte is lost, the books agree with the device, and the same thing tried again succeeds.
#include <catch2/catch.hpp>

#include "tests/unit/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr unsigned kFirstSeed = 1;
constexpr unsigned kSmallSeed = 2;
constexpr unsigned kLaterSeed = 3;
constexpr Bytes kFirst = kibibytes(128 * 6);  // more handles than lanes
constexpr Bytes kSmall = kibibytes(3);
constexpr Bytes kLater = kibibytes(130);

void check_books(const World& t) {
  const MemoryUse use = t.memory.use();
  Bytes swappable;
  Bytes mapped;
  for (const Handle& handle : t.memory.handles()) {
    REQUIRE_FALSE(handle.busy);
    REQUIRE(handle.counted == handle.mapped);
    swappable += handle.size;
    if (handle.mapped) mapped += handle.size;
  }
  REQUIRE(use.swappable == swappable);
  REQUIRE(use.resident == mapped);
  REQUIRE(t.device.physical() == mapped);
  REQUIRE(t.device.misuse() == "");
}

// Tries until it succeeds: as often as a failure was injected (twice at most), and once more.
template <class Step>
void insist(World& t, Step step) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    const bool done = step();
    check_books(t);
    if (done) return;
    REQUIRE(t.device.has_failed());
  }
  FAIL("a step did not succeed although the driver did");
}

CUdeviceptr allocate(World& t, Bytes size, unsigned seed) {
  CUdeviceptr address = 0;
  insist(t, [&] { return t.memory.allocate(&address, size) == CUDA_SUCCESS; });
  fill(address, size, seed);
  return address;
}

void free(World& t, CUdeviceptr address) {
  insist(t, [&] { return t.memory.free(address) == CUDA_SUCCESS; });
}

void swap_out_and_in(World& t, Bytes floor) {
  t.memory.set_allowed(floor);
  insist(t, [&] { return t.memory.evict(); });
  t.memory.set_allowed(gibibytes(1));
  insist(t, [&] { return t.memory.restore(); });
}

// The life of a program, with a failure somewhere. Whether the failure came.
bool live(unsigned fail, unsigned more) {
  World t;
  t.device.fail_call(fail, CUDA_ERROR_UNKNOWN, more);
  const CUdeviceptr first = allocate(t, kFirst, kFirstSeed);
  const CUdeviceptr small = allocate(t, kSmall, kSmallSeed);
  swap_out_and_in(t, {});
  REQUIRE(holds(first, kFirst, kFirstSeed));
  REQUIRE(holds(small, kSmall, kSmallSeed));
  const CUdeviceptr later = allocate(t, kLater, kLaterSeed);
  swap_out_and_in(t, kibibytes(400));
  REQUIRE(holds(first, kFirst, kFirstSeed));
  REQUIRE(holds(small, kSmall, kSmallSeed));
  REQUIRE(holds(later, kLater, kLaterSeed));
  t.memory.set_allowed({});
  insist(t, [&] { return t.memory.evict(); });
  free(t, later);
  t.memory.set_allowed(gibibytes(1));
  insist(t, [&] { return t.memory.restore(); });
  REQUIRE(holds(first, kFirst, kFirstSeed));
  free(t, first);
  free(t, small);
  return t.device.has_failed();
}

}  // namespace

TEST_CASE("no failure of the driver loses a byte", "[failure]") {
  const unsigned more = GENERATE(0u, 1u);
  unsigned n = 1;
  while (live(n, more)) ++n;
  INFO(n << " calls");
  CHECK(n > 100);
}
