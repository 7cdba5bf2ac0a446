// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/kernel_ways.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using namespace std::chrono_literals;

namespace {
constexpr KernelWays::Key kKernel{0x1000, 8};
constexpr Bytes kHandle = mebibytes(64);
}  // namespace

TEST_CASE("a kernel at the speed of the bus streams", "[kernel_ways]") {
  KernelWays ways;
  CHECK(ways.way(kKernel) == Way::untried);
  ways.ran_away(kKernel, 1300us, kHandle);
  CHECK(ways.way(kKernel) == Way::streams);
  CHECK(ways.way({kKernel.kernel, 16}) == Way::untried);
}

TEST_CASE("few bytes take the time of a launch", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 90us, Bytes{512});
  CHECK(ways.way(kKernel) == Way::streams);
}

TEST_CASE("a product needs the GPU for good", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 143ms, mebibytes(128));
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  ways.ran_here(kKernel, 1300us, mebibytes(128));
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  ways.ran_here(kKernel, 143ms, mebibytes(128));
  ways.ran_away(kKernel, 10us, mebibytes(128));
  CHECK(ways.way(kKernel) == Way::needs_gpu);
}

TEST_CASE("a long kernel that loses little streams", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 50ms, kHandle);
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  ways.ran_here(kKernel, 48ms, kHandle);
  CHECK(ways.way(kKernel) == Way::streams);
  // The time on the GPU is known, so the next slow run decides at once.
  ways.ran_away(kKernel, 60ms, kHandle);
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  ways.ran_away(kKernel, 48ms, kHandle);
  CHECK(ways.way(kKernel) == Way::needs_gpu);
}

TEST_CASE("runs of different sizes are compared by byte", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 50ms, kHandle);
  ways.ran_here(kKernel, 480ms, mebibytes(640));
  CHECK(ways.way(kKernel) == Way::streams);
}

TEST_CASE("a fast run does not end the doubt about a slow one", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 50ms, kHandle);
  ways.ran_away(kKernel, 50us, mebibytes(2));
  CHECK(ways.way(kKernel) == Way::needs_gpu);
}

TEST_CASE("a streaming kernel that becomes slow is judged anew", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 50us, mebibytes(2));
  CHECK(ways.way(kKernel) == Way::streams);
  ways.ran_away(kKernel, 143ms, kHandle);
  CHECK(ways.way(kKernel) == Way::needs_gpu);
}

TEST_CASE("a run without bytes says nothing", "[kernel_ways]") {
  KernelWays ways;
  ways.ran_away(kKernel, 1s, {});
  ways.ran_here(kKernel, 1s, {});
  CHECK(ways.way(kKernel) == Way::untried);
}

TEST_CASE("the number of keys is bounded, and further ones need the GPU", "[kernel_ways]") {
  KernelWays ways;
  for (std::uint32_t word = 0; word < KernelWays::kMostKeys; ++word) {
    CHECK(ways.way({1, word}) == Way::untried);
    ways.ran_away({1, word}, 1us, kHandle);
  }
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  ways.ran_away(kKernel, 1us, kHandle);
  CHECK(ways.way(kKernel) == Way::needs_gpu);
  CHECK(ways.way({1, 0}) == Way::streams);
}
