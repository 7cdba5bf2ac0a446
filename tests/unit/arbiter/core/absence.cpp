// SPDX-License-Identifier: Apache-2.0
// Tests how long other tenants wait for a tenant whose processes are stopped or are about to be stopped. Time
// advances from one timer of the core to the next.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

void suspend(Bench& b, std::uint64_t id, bool suspended) {
  b.handle(Suspend{.tenant = TenantId{id}, .suspended = suspended});
}

// ---- processes that are stopped ----

TEST_CASE("Stopped tenants do not wait: no tenant leaves for them, and the time counts as no wait") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  REQUIRE(b.told[1].page.contended);
  SECTION("as long as they are") {
    b.stop(2);
    CHECK_FALSE(b.told[1].page.contended);
    b.pass_by_timers(1h);
    CHECK(b.open(1));
    b.go_on(2);
    CHECK(b.sent<Revoke>(1));
  }
  SECTION("nor afterwards") {
    b.pass_by_timers(1s);
    b.stop(2);
    b.pass_by_timers(4s);
    b.queue_up(3, 3, 60);
    b.pass_by_timers(1s);
    b.go_on(2);
    b.pass_by_timers(4s);
    REQUIRE(b.sent<Revoke>(1));
    CHECK(b.sent<Restore>(3));
    CHECK_FALSE(b.sent<Restore>(2));
  }
}

TEST_CASE(
    "While a tenant enters, the core checks only sessions that are not ready, and only their stop ends the "
    "entry") {
  Bench b = two_leave();
  b.settle_in(4, 1, 5);
  b.release(2, 30, true);
  b.release(3, 30, true);
  b.tell(2, 30, 0);
  b.tell(3, 30, 20);
  b.ready(1, 75);
  REQUIRE_FALSE(b.open(1));
  unsigned looks = 0;
  for (const Nanoseconds end = b.now + 1s; b.timer && *b.timer <= end;) {
    b.pass_to_timer();
    looks += b.looked_at(4) ? 1 : 0;
    CHECK_FALSE(b.looked_at(1));
  }
  CHECK(looks > 0);
  b.stop(1);
  CHECK_FALSE(b.sent<Revoke>(1));
  b.ready(4, 5);
  CHECK(b.open(1));
}

TEST_CASE("The loss of a stopped tenant's lease is noted once in each end of a turn") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 40);
  REQUIRE(b.open(2));
  b.settle_in(3, 3, 0);
  b.queue_up(4, 4, 60);
  b.pass_by_timers(1s);
  const auto is_noted_as_taken = [&b] {
    std::size_t notes = 0;
    while (b.holds(1)) {
      b.pass_to_timer();
      notes += b.notes.size();
    }
    return notes == 1;
  };
  b.stop(1);
  REQUIRE_FALSE(b.open(1));
  CHECK(is_noted_as_taken());
  b.go_on(1);
  REQUIRE(b.holds(1));
  b.stop(1);
  CHECK_FALSE(is_noted_as_taken());
  b.go_on(1);
  b.release(1, true, Bench::use(60, 60));
  REQUIRE_FALSE(b.holds(1));
  b.handle(SessionGone{.session = SessionId{2}});
  b.handle(SessionGone{.session = SessionId{4}});
  b.ready(1, 60);
  REQUIRE(b.open(1));
  b.queue_up(5, 5, 60);
  b.pass_by_timers(1s);
  b.stop(1);
  CHECK(is_noted_as_taken());
}

TEST_CASE("A process that reports its drain is no longer stopped, and waits like any other") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.stop(1);
  REQUIRE(b.sent<Revoke>(2));  // tenant 2 cannot enter: the memory of tenant 1 stays on the GPU
  b.release(1, true, Bench::use(60, 60));
  CHECK(b.sent<Restore>(1));
}

TEST_CASE("Other sessions may submit once, 100 ms after a tenant without a lease was resumed") {
  Bench b = two_leave();
  b.release(3, 30, true);
  b.stop(2);
  while (b.holds(2)) b.pass_to_timer();
  b.pass_by_timers(10s);
  b.go_on(2);
  CHECK_FALSE(b.sent<Step>(3));
  CHECK(b.until_sent<Step>(3) == 100ms);
}

// ---- suspension ----

TEST_CASE("Memory that another process may need for its drain is not evicted before a suspension") {
  Bench b = two_leave();
  suspend(b, 2, true);
  b.release(2, 30, true);
  CHECK_FALSE(b.sent<Evict>(2));
  b.release(3, 30, false);
  REQUIRE(b.sent<Evict>(2));
  REQUIRE(b.sent<Evict>(3));
  CHECK(b.last_sent<Evict>(2)->allowed == Bytes{});
  CHECK(b.last_sent<Evict>(3)->allowed == Bytes{});
}

TEST_CASE("A tenant that has to evict before a suspension has 10 s for it, however long ago it drained") {
  Bench b = two_leave();
  suspend(b, 2, true);
  b.release(2, 30, true);
  b.pass_by_timers(50ms);
  b.release(3, 30, false);
  REQUIRE(b.last_sent<Evict>(2)->allowed == Bytes{});
  b.tell(3, 30, 0);
  CHECK(b.notes.empty());
  const Nanoseconds begun = b.now;
  while (b.notes.empty()) b.pass_to_timer();
  CHECK(b.now - begun == 10s);
}

TEST_CASE("A tenant that has to evict before a suspension may report that it cannot") {
  Bench b;
  b.settle_in(1, 1, 60);
  suspend(b, 1, true);
  b.release(1, false, Bench::use(60, 60));
  REQUIRE(b.sent<Evict>(1)->allowed == Bytes{});
  b.tell(1, 60, 60, true);
  CHECK(b.notes.size() == 1);
}

}  // namespace
}  // namespace sharedgpu
