// SPDX-License-Identifier: Apache-2.0
// How a tenant leaves the running set: draining, single submissions of drained sessions, requests for memory
// during the drain, stopped processes. Time advances from one timer of the core to the next.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Lets tenant 2 have its next turn, and returns when this turn has ended.
void leave_again(Bench& b) {
  b.release(2, 30, true);
  if (b.holds(2)) b.release(3, 30, true);
  REQUIRE_FALSE(b.holds(2));
  b.tell(2, 30, 0);
  b.tell(3, 30, 25);
  b.ready(1, 75);
  REQUIRE(b.open(1));
  b.pass_by_timers(10s);
  b.release(1, 75, true);
  b.tell(1, 75, 40);
  b.ready(2, 30);
  b.ready(3, 30);
  REQUIRE(b.open(2));
  b.pass_by_timers(10s);
  REQUIRE(b.sent<Revoke>(2));
}

// ---- single submissions ----

TEST_CASE(
    "A drained session may submit once, 100 ms after the gates were closed, and then again after 2 ms") {
  Bench b = two_leave();
  b.ask(1);
  b.release(2, 30, true);
  REQUIRE(b.until_sent<Step>(2) == 100ms);
  b.release(2, 30, true);
  const std::optional<Nanoseconds> pause = b.until_sent<Step>(2);
  REQUIRE(pause);
  CHECK(*pause >= 2ms);
  CHECK(*pause < 3ms);
}

TEST_CASE("Steps become rarer during the end of a turn, and begin anew with the next end") {
  Bench b = two_leave();
  b.release(2, 30, true);
  REQUIRE(b.until_sent<Step>(2));
  Nanoseconds pause{};
  for (int i = 0; i < 200; ++i) {
    b.release(2, 30, true);
    const auto next = b.until_sent<Step>(2);
    REQUIRE(next);
    CHECK(*next >= pause);
    pause = *next;
  }
  CHECK(pause > 8ms);
  leave_again(b);
  b.release(2, 30, true);
  REQUIRE(b.until_sent<Step>(2) == 100ms);
  b.release(2, 30, true);
  CHECK(*b.until_sent<Step>(2) < 3ms);
}

TEST_CASE(
    "After a Step, the core waits for other sessions twice as long as the longest Step of this turn's end") {
  Bench b = two_leave();
  b.release(2, 30, true);
  REQUIRE(b.until_sent<Step>(2));
  b.pass_by_timers(1s);
  SECTION("who was let forward answers: as long as that took") {
    b.release(2, 30, true);
    CHECK(b.until_sent<Step>(2) == 2s);
    b.pass_by_timers(10ms);
    b.release(2, 30, true);
    CHECK(b.until_sent<Step>(2) == 20ms);
  }
  SECTION("another one answers: as long as the longest") {
    b.release(2, 30, true);
    REQUIRE(b.until_sent<Step>(2));
    b.pass_by_timers(10ms);
    b.release(3, 30, true);
    CHECK(b.until_sent<Step>(3) == 2s);
  }
  SECTION("and nothing of it counts when the next turn ends") {
    b.release(2, 30, true);
    leave_again(b);
    b.release(2, 30, true);
    REQUIRE(b.until_sent<Step>(2) == 100ms);
    b.release(3, 30, true);
    CHECK(*b.until_sent<Step>(3) < 3ms);
  }
}

TEST_CASE("The pause after a single submission depends on the time since the last drain") {
  Bench b;
  b.settle_in(2, 2, 20);
  b.settle_in(3, 2, 20);
  b.settle_in(4, 2, 20);
  b.queue_up(1, 1, 75);
  b.pass_by_timers(10s);
  b.release(2, 20, true);
  b.release(3, 20, true);
  REQUIRE(b.until_sent<Step>(2));
  REQUIRE(b.sent<Step>(3));
  b.pass_by_timers(1s);
  b.release(2, 20, true);
  b.pass_by_timers(10ms);
  b.release(3, 20, true);
  // Session 3 drained 10 ms after session 2. The pause before session 2's next submission begins with the
  // drain of session 2.
  CHECK(b.until_sent<Step>(2) == 1990ms);
}

TEST_CASE("The next pause depends on the last single submission, and not on the one before it") {
  Bench b;
  b.settle_in(2, 2, 20);
  b.settle_in(3, 2, 20);
  b.settle_in(4, 2, 20);
  b.queue_up(1, 1, 75);
  b.pass_by_timers(10s);
  b.release(2, 20, true);
  REQUIRE(b.until_sent<Step>(2));
  b.pass_by_timers(1s);
  b.release(2, 20, false);  // the session has nothing more to submit
  b.release(3, 20, true);
  REQUIRE(b.until_sent<Step>(3));
  CHECK_FALSE(b.sent<Step>(2));
  b.pass_by_timers(10ms);
  b.release(3, 20, true);
  CHECK(b.until_sent<Step>(3) == 20ms);
}

TEST_CASE("The lease of a tenant that is stopped after a Step is revoked a second later") {
  Bench b = two_leave();
  b.pass_by_timers(2s);
  b.release(2, 30, true);
  REQUIRE(b.until_sent<Step>(2));
  b.stop(2);
  b.stop(3);
  b.pass_by_timers(999ms);
  CHECK(b.holds(2));
  b.pass_by_timers(1ms);
  CHECK_FALSE(b.holds(2));
}

TEST_CASE("A Slurm step that starts while its tenant leaves has the lease before it may submit") {
  Bench b = two_leave();
  b.handle(SessionCame{
      .session = SessionId{4}, .tenant = TenantId{2}, .step = {.job = 2, .step = 5}, .cap = {}, .hello = {}});
  b.attach(4);
  const LeaseKey key{.tenant = TenantId{2}, .gpu = kGpu, .step = {.job = 2, .step = 5}};
  b.want(4);
  CHECK_FALSE(b.written.open(key).has_value());
  REQUIRE(b.until_sent<Step>(4));
  CHECK(b.written.open(key).has_value());
}

// ---- the end of leaving ----

TEST_CASE("The turn ends when the last session that has not drained dies") {
  Bench b = two_leave();
  b.release(2, 30, true);
  b.handle(SessionGone{.session = SessionId{3}});
  CHECK_FALSE(b.holds(2));
  CHECK(b.sent<Evict>(2));
}

TEST_CASE("A tenant that has asked for the GPU during its drain waits, whatever Released says") {
  Bench b = two_leave();
  b.want(2);
  b.release(2, false, Bench::use(30, 30));
  b.release(3, false, Bench::use(30, 30));
  b.tell(2, 30, 0);
  b.tell(3, 30, 25);
  b.ready(1, 75);
  REQUIRE(b.open(1));
  CHECK(b.told[1].page.contended);
  CHECK(b.until_sent<Revoke>(1) == 10s);
}

// ---- requests for memory while a tenant leaves ----

TEST_CASE("A tenant that allocates while its turn ends gets memory of the entering tenant after 100 ms") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.grow(1, 80, 60);
  CHECK(b.until_sent<Revoke>(2) == 100ms);
}

TEST_CASE("Of two leaving tenants that wait for memory, the tenant whose gates closed first gets it") {
  Bench b;
  b.come(4, 4);
  b.attach(4);
  b.grow(4, 0, 0, 30);
  b.settle_in(1, 1, 30);
  b.settle_in(2, 2, 30);
  b.grow(2, 45, 30);
  REQUIRE(b.sent<Revoke>(2));
  REQUIRE(b.until_sent<Revoke>(1) == 100ms);
  b.grow(1, 45, 30);
  b.pass_by_timers(200ms);
  REQUIRE_FALSE(b.granted(1));
  b.say(4, Usage{.request = 0, .use = Bench::use(0, 0, 15), .stuck = 0});
  CHECK(b.granted(2));
  CHECK_FALSE(b.sent<Verdict>(1));
}

// Tenants 1 and 2, of 45 MiB each, are leaving. Tenant 3 was entering and has left the running set. Tenant 1
// needs more memory than is free.
Bench both_leave() {
  Bench b;
  b.settle_in(1, 1, 45);
  b.settle_in(2, 2, 45);
  b.queue_up(3, 3, 75);
  b.pass_by_timers(10s);
  b.pass_by_timers(1ms);
  b.grow(1, 60, 45);
  b.pass_by_timers(100ms);
  b.release(3, true, Bench::use(75, 10));
  return b;
}

TEST_CASE("A request for memory that no tenant can give up is refused 10 s after it was made") {
  Bench b = both_leave();
  const Nanoseconds asked = b.now - 100ms;
  b.grow(2, 60, 45);
  b.pass_by_timers(5s);
  b.grow(1, 60, 45);
  b.ask(2);
  REQUIRE(b.until_sent<Verdict>(1));
  CHECK(b.refused(1));
  CHECK(
      b.notes ==
      std::vector<std::string>{
          "allocation refused: the tenant needs more memory to finish its turn than other tenants can free"});
  CHECK(b.now - asked == 10s);
}

TEST_CASE("A request that waits for memory of a stopped tenant is refused, too") {
  Bench b = both_leave();
  b.stop(2);
  REQUIRE(b.until_sent<Verdict>(1));
  CHECK(b.refused(1));
}

}  // namespace
}  // namespace sharedgpu
