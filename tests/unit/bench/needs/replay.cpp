// SPDX-License-Identifier: Apache-2.0
#include "bench/needs/replay.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

using namespace sharedgpu;
using namespace sharedgpu::needs;

namespace {

constexpr Bytes kSize = mebibytes(64);

Trace cycles(std::uint64_t handles, unsigned count) {
  Trace trace;
  for (unsigned i = 0; i < count; ++i)
    for (std::uint64_t handle = 1; handle <= handles; ++handle) trace.needs.push_back({handle, kSize});
  return trace;
}

Bytes times_size(std::uint64_t count) { return {kSize.count * count}; }

}  // namespace

TEST_CASE("handles that fit into the window together come in once, and never leave", "[replay]") {
  const Trace trace = cycles(10, 4);
  CHECK(optimum(trace, times_size(10)).bytes == times_size(10));
  CHECK(least_recently_used(trace, times_size(10)).bytes == times_size(10));
  CHECK(with_plans(trace, times_size(10), {}).bytes == times_size(10));
}

TEST_CASE("in a sweep, eviction of the least recently used handle moves all handles, and the optimum few",
          "[replay]") {
  const Trace trace = cycles(5, 3);
  // Each need brings a handle in, and each need after the first four makes another handle leave.
  CHECK(least_recently_used(trace, times_size(4)).bytes == times_size(15 + 11));
  // Handles 1 to 5 come in, and 5 replaces 4. Then 4 comes in and replaces 3, and 3 comes in and replaces 2.
  CHECK(optimum(trace, times_size(4)).bytes == times_size(7 + 3));
}

TEST_CASE("parts of handles move in the optimum", "[replay]") {
  Trace trace;
  for (int i = 0; i < 2; ++i)
    for (std::uint64_t handle = 1; handle <= 2; ++handle) trace.needs.push_back({handle, kSize});
  // Half of one handle leaves for the other handle, and comes back at the next need.
  CHECK(optimum(trace, {kSize.count * 3 / 2}).bytes == Bytes{2 * kSize.count + 5 * kSize.count / 2});
}

TEST_CASE("the bytes of the first needs may be left out", "[replay]") {
  Trace trace = cycles(5, 3);
  trace.learned = 5;
  CHECK(optimum(trace, times_size(4)).bytes == times_size(4));
  CHECK(least_recently_used(trace, times_size(4)).exchanges == 10);
}

TEST_CASE("a need larger than the window is skipped", "[replay]") {
  const Trace trace = cycles(3, 2);
  CHECK(optimum(trace, mebibytes(63)).bytes == Bytes{});
  CHECK(least_recently_used(trace, mebibytes(63)).bytes == Bytes{});
  CHECK(with_plans(trace, mebibytes(63), gibibytes(1)).bytes == Bytes{});
}

namespace {

double bytes_over_optimum(const Trace& trace, double oversubscription, Bytes ahead) {
  const Bytes window{
      static_cast<std::uint64_t>(static_cast<double>(footprint(trace).count) / oversubscription)};
  return static_cast<double>(with_plans(trace, window, ahead).bytes.count) /
         static_cast<double>(optimum(trace, window).bytes.count);
}

}  // namespace

TEST_CASE("once learned, the order of recorded trainings moves a tenth more than the optimum at most",
          "[replay]") {
  for (const std::string name : {"mlp", "transformer-bf16", "transformer-fp32"}) {
    std::ifstream file(std::string(RECORDED_NEEDS "/") + name + ".needs");
    REQUIRE(file);
    const Trace trace = read(file, name);
    REQUIRE(trace.learned > 0);
    for (const double oversubscription : {1.25, 1.5, 2.0}) {
      CAPTURE(name, oversubscription);
      CHECK(bytes_over_optimum(trace, oversubscription, {}) < 1.1);
      // Fewer exchanges, each of which brings in handles that are needed later, move more bytes.
      CHECK(bytes_over_optimum(trace, oversubscription, mebibytes(256)) < 1.2);
    }
  }
}
