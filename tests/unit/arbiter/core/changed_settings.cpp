// SPDX-License-Identifier: Apache-2.0
// Settings that change while tenants run: the overuse rules, the time after which idle tenants lose their
// turn, and capacities.
#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Response = Overstay::Response;

// Tenant 1 holds the lease and does not leave, although its turn has ended and tenant 2 waits.
Bench overstaying(const OveruseRules& rules) {
  Bench b({}, {.fixed = 10s}, {}, rules);
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

unsigned count(const Bench& b, Response response) {
  return static_cast<unsigned>(
      std::count_if(b.overstays.begin(), b.overstays.end(),
                    [response](const Overstay& its) { return its.response == response; }));
}

TEST_CASE("A shorter MaxOveruse counts for overuse that has begun") {
  Bench b = overstaying({.most = 1h});
  b.pass_by_timers(30s);
  CHECK(count(b, Response::warn) == 0);
  b.handle(TuningSet{{.idle_release = 5ms, .most_overuse = 20s, .cancel_overuse = false}});
  CHECK(count(b, Response::warn) == 1);
}

TEST_CASE("A tenant that was warned is ended if OnOveruse changes to cancel") {
  Bench b = overstaying({.most = 20s});
  b.pass_by_timers(30s);
  CHECK(count(b, Response::warn) == 1);
  b.handle(TuningSet{{.idle_release = 5ms, .most_overuse = 20s, .cancel_overuse = false}});
  CHECK(count(b, Response::warn) == 1);  // the rules have not changed, so there is no second warning
  b.handle(TuningSet{{.idle_release = 5ms, .most_overuse = 20s, .cancel_overuse = true}});
  CHECK(count(b, Response::cancel) == 1);
}

TEST_CASE("A GPU with a new capacity admits memory up to that capacity") {
  Bench b;
  CHECK(b.gpu().capacity == mebibytes(100));
  b.handle(CapacitySet{.gpu = kGpu, .capacity = mebibytes(50)});
  CHECK(b.gpu().usable == mebibytes(50));
  CHECK(b.gpu(kOther).usable == mebibytes(100));
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 60, 0);
  CHECK(b.refused(1));
  b.handle(CapacitySet{.gpu = kGpu, .capacity = mebibytes(80)});
  b.grow(1, 60, 0);
  CHECK(b.granted(1));
  b.handle(CapacitySet{.gpu = {{9}}, .capacity = mebibytes(80)});  // an unknown GPU
}

}  // namespace
}  // namespace sharedgpu
