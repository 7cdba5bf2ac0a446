// SPDX-License-Identifier: Apache-2.0
// The order in which the core asks tenants to evict, and the state that the core resets between two restores.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

TEST_CASE("The tenant that ran least recently evicts first, whatever its number") {
  Bench b;
  for (std::uint64_t id : {1, 2, 3}) b.settle_in(id, id, 30);
  const std::uint64_t first = GENERATE(2, 3);
  const std::uint64_t second = 5 - first;
  for (const std::uint64_t id : {first, second}) {
    b.grow(id, 75, 30);  // the tenant outgrows the running set, with 30 MiB on the GPU
    REQUIRE(b.sent<Revoke>(id));
    b.release(id, false, Bench::use(75, 30));
    REQUIRE(b.tenant(id).phase == Phase::out);
    b.pass(1s);
  }
  REQUIRE(b.open(1));
  b.grow(1, 60, 30);
  REQUIRE(b.sent<Evict>(first));
  CHECK(b.sent<Evict>(first)->allowed == mebibytes(10));
  CHECK_FALSE(b.sent<Evict>(second));
  // The tenant `second` evicts once the tenant `first` has nothing left on the GPU.
  b.grow(1, 75, 30);
  CHECK(b.sent<Evict>(first)->allowed == Bytes{});
  CHECK(b.sent<Evict>(second)->allowed == mebibytes(25));
}

TEST_CASE("Each turn's restore has its own time, however long ago the last one was") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, false);
  b.tell(1, 60, 40);
  b.ready(2, 60);
  REQUIRE(b.open(2));
  b.pass_by_timers(5min);
  b.want(1);
  REQUIRE(b.sent<Revoke>(2));
  b.release(2, 60, true);
  b.tell(2, 60, 40);
  b.ready(1, 60);
  b.pass_by_timers(10s);
  REQUIRE(b.sent<Revoke>(1));
  b.release(1, 60, true);
  b.tell(1, 60, 40);
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(60));
  SECTION("before it gives up its place") { CHECK(b.until_sent<Revoke>(2) == 10s); }
  SECTION("before others evict more for it") { CHECK(b.until_sent<Evict>(1) == 500ms); }
}

}  // namespace
}  // namespace sharedgpu
