// SPDX-License-Identifier: Apache-2.0
// Tests which reports of sessions the core believes, and which requests for growth it grants, defers or
// refuses.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

void come_back(Bench& b, std::uint64_t session, std::uint64_t tenant, bool held = false) {
  Hello hello;
  hello.resuming = 1;
  hello.held = held ? 1 : 0;
  hello.epoch = Epoch{7};
  b.come(session, tenant, hello);
  b.attach(session);
}

void settle(Bench& b, std::uint64_t id, unsigned swappable, unsigned resident, unsigned size) {
  MemoryUse its = Bench::use(swappable, resident, size);
  its.settling = mebibytes(size);
  b.say(id, Usage{.request = 7, .use = its, .stuck = 0});
}

Recovered with_lease(unsigned expected) {
  Recovered recovered;
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 1, .step = 0}};
  recovered.leases.grant(key, Epoch{7}, 990s);
  recovered.last_epoch = Epoch{7};
  recovered.last_record = 990s;
  recovered.expected_sessions = expected;
  return recovered;
}

// Tenant 1 has drained, and has evicted 20 of its 60 MiB. Tenant 2 may restore all of its 60 MiB.
Bench two_restores() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, true);
  b.tell(1, 60, 40);
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(60));
  return b;
}

// ---- reports that the core believes ----

TEST_CASE("A session outside a turn counts with no more memory on the GPU than before, whatever it reports") {
  Bench b;
  b.settle_in(1, 1, 100);
  b.queue_up(2, 2, 60);
  SECTION("it is out") { REQUIRE(b.tenant(2).phase == Phase::out); }
  SECTION("it is on its way in, and was sent no Restore yet") {
    b.pass(10s);
    REQUIRE(b.tenant(2).phase == Phase::entering);
    REQUIRE_FALSE(b.sent<Restore>(2));
  }
  b.tell(2, 60, 30);
  CHECK(b.session(2).use.resident == Bytes{});
}

TEST_CASE("A context that is reported again counts as before") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  MemoryUse use;
  use.context = mebibytes(25);
  for (int i = 0; i < 2; ++i) {
    b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
    CHECK(b.gpu().usable == mebibytes(95));
  }
}

TEST_CASE("Ready and Released change nothing about pinned memory") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.grow(1, 40, 40, 20);
  REQUIRE(b.granted(1));
  b.queue_up(2, 2, 60);
  b.pass(10s);
  REQUIRE(b.sent<Revoke>(1));
  b.release(1, true, Bench::use(40, 40, 0));
  CHECK(b.session(1).use.pinned == mebibytes(20));
}

TEST_CASE("A session that sends Ready too early is not ready") {
  Bench b = two_restores();
  b.say(2, Ready{.epoch = b.epoch(2), .use = Bench::use(60, 59)});
  CHECK_FALSE(b.open(2));
  CHECK_FALSE(b.session(2).ready);
  b.ready(2, 60);
  CHECK(b.open(2));
}

TEST_CASE("A session that is ready stays so when it reports the same memory again") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(2, 2, 40);
  b.come(3, 2);
  b.attach(3);
  b.grow(3, 10, 0);
  b.release(2, 40, true);
  b.release(3, 0, true);
  b.pass(10s);
  b.release(1, 60, true);
  b.tell(1, 60, 50);
  b.ready(2, 40);
  b.tell(2, 40, 40);
  b.ready(3, 10);
  CHECK(b.open(2));
  CHECK(b.open(3));
}

TEST_CASE("Memory that a drained session does not use of its limit is available to others at once") {
  Bench b;
  b.settle_in(2, 2, 30);
  b.settle_in(3, 2, 30);
  b.queue_up(1, 1, 75);
  b.pass(10s);
  REQUIRE(b.sent<Restore>(1)->allowed == mebibytes(40));
  b.release(2, true, Bench::use(30, 10));
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  REQUIRE(b.sent<Restore>(1));
  CHECK(b.sent<Restore>(1)->allowed == mebibytes(60));
}

TEST_CASE("A session that reconnects is believed up to the memory of its GPU") {
  Bench b(with_lease(2));
  come_back(b, 1, 1, true);
  b.say(1, Usage{.request = 0, .use = Bench::use(500, 60, 500), .stuck = 0});
  CHECK(b.session(1).use.swappable == mebibytes(120));
  CHECK(b.session(1).use.pinned == mebibytes(120));
}

TEST_CASE("A session that reconnects in its turn may fill all memory that it reports") {
  Bench b(with_lease(2));
  come_back(b, 1, 1, true);
  b.tell(1, 60, 20);
  REQUIRE(b.core->in_grace());
  CHECK(b.gpu().promised == mebibytes(60));
}

TEST_CASE("Memory that a session reports as pinned when it reconnects is swappable until a grant") {
  Bench b(with_lease(2));
  come_back(b, 1, 1, true);
  MemoryUse its = Bench::use(50, 50, 10);
  its.settling = mebibytes(10);
  b.say(1, Usage{.request = 0, .use = its, .stuck = 0});
  CHECK(b.session(1).use.pinned == Bytes{});
  CHECK(b.session(1).use.footprint() == mebibytes(50));
}

// ---- reports without a request ----

TEST_CASE("A report without a request changes the accounting only") {
  Bench b;
  b.settle_in(1, 1, 60);
  SECTION("the tenant's cap was lowered below what it has") {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = mebibytes(50)});
    b.tell(1, 60, 55);
    CHECK(b.session(1).use.resident == mebibytes(55));
  }
  SECTION("it claims more than the host memory of its tenant can hold") {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = mebibytes(70)});
    MemoryUse use = Bench::use(65, 60);
    use.host = mebibytes(80);
    b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
    CHECK_FALSE(b.session(1).defers_growth);
    CHECK(b.session(1).use.swappable == mebibytes(60));
  }
  CHECK_FALSE(b.sent<Verdict>(1));
  CHECK(b.session(1).requests == 0);
}

// ---- growth after a restart of the arbiter ----

TEST_CASE(
    "Growth that a session reported when it reconnected is decided when the session asks, however late") {
  Bench b;
  come_back(b, 1, 1);
  MemoryUse use = Bench::use(60, 60);
  use.host_limit = mebibytes(50);
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  b.say(1, Usage{.request = 4, .use = use, .stuck = 0});
  REQUIRE(b.refused(1));
  CHECK(b.sent<Verdict>(1)->host_most == mebibytes(50));
}

TEST_CASE(
    "Pinned growth that a session reported when it reconnected waits for room, with all later requests") {
  Bench b;
  b.settle_in(1, 1, 60);
  come_back(b, 2, 2);
  const auto report = [&b](std::uint64_t request) {
    b.say(2, Usage{.request = request, .use = Bench::use(0, 0, 50), .stuck = 0});
  };
  report(0);
  report(0);
  report(4);
  CHECK_FALSE(b.sent<Verdict>(2));
  report(5);
  CHECK_FALSE(b.sent<Verdict>(2));
  b.tell(1, 50, 50);
  CHECK(b.all_sent<Verdict>(2).size() == 2);
  CHECK(b.granted(2));
}

TEST_CASE("Growth of a reconnected session waits for room as long as the session is at work") {
  Bench b;
  b.settle_in(1, 1, 60);
  come_back(b, 2, 2);
  b.grow(2, 60, 50);
  CHECK_FALSE(b.sent<Verdict>(2));
  b.release(2, true, Bench::use(60, 50));  // the tenant allocates nothing before its next turn
  CHECK(b.granted(2));
}

TEST_CASE("Growth that can never fit is refused once the recovery is over") {
  Bench b(with_lease(1));
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 101, 0);
  CHECK_FALSE(b.sent<Verdict>(2));
  b.pass(2s);
  CHECK(b.refused(2));
}

// ---- answers ----

TEST_CASE("Growth that waited for host memory is answered once") {
  Bench b;
  b.settle_in(1, 1, 20);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = mebibytes(50)});
  MemoryUse use = Bench::use(40, 20);
  use.host = mebibytes(60);
  b.say(1, Usage{.request = 4, .use = use, .stuck = 0});
  REQUIRE(b.session(1).defers_growth);
  b.tell(1, 40, 20);
  CHECK(b.all_sent<Verdict>(1).size() == 1);
  CHECK(b.granted(1));
  CHECK_FALSE(b.session(1).defers_growth);
  b.pass(10s);
  CHECK_FALSE(b.sent<Verdict>(1));
}

TEST_CASE("A tenant that was told to leave is granted growth at once if there is room") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  b.grow(1, 80, 60);
  CHECK(b.granted(1));
  CHECK(b.sent<Verdict>(1)->allowed == mebibytes(80));
}

TEST_CASE("A pin request of a session that restores waits for its turn, however long that takes") {
  Bench b = two_restores();
  b.tell(2, 60, 20);
  settle(b, 2, 60, 20, 10);
  for (unsigned restored : {30u, 40u}) {
    b.pass_by_timers(6s);
    MemoryUse its = Bench::use(60, restored, 10);
    its.settling = mebibytes(10);
    b.say(2, Usage{.request = 0, .use = its, .stuck = 0});
    CHECK_FALSE(b.sent<Verdict>(2));
  }
  REQUIRE(b.tenant(2).phase == Phase::entering);
  CHECK(b.session(2).requests == 1);
  b.ready(2, 60);
  REQUIRE(b.open(2));
  b.pass_to_timer();
  CHECK(b.granted(2));
  CHECK(b.session(2).use.pinned == mebibytes(10));
}

TEST_CASE("A pin request that was refused is answered once") {
  Bench b;
  b.settle_in(2, 2, 50);
  b.settle_in(3, 2, 30);
  b.queue_up(1, 1, 75);
  b.pass(10s);
  b.release(2, 50, true);
  b.pass(100ms);
  REQUIRE(b.sent<Step>(2));
  settle(b, 2, 50, 50, 10);
  REQUIRE(b.until_sent<Verdict>(2) == 10s);
  REQUIRE(b.refused(2));
  CHECK(b.session(2).requests == 0);
  b.pass(10s);
  CHECK_FALSE(b.sent<Verdict>(2));
}

TEST_CASE("cuMemGetInfo is bounded by the host memory of the process's own step") {
  Bench b;
  for (const std::uint32_t step : {0u, 1u}) {
    b.handle(SessionCame{.session = SessionId{1 + step},
                         .tenant = TenantId{1},
                         .step = {.job = 1, .step = step},
                         .cap = {},
                         .hello = {}});
    b.attach(1 + step);
    MemoryUse use = Bench::use(20, 0);
    use.host_limit = mebibytes(step == 0 ? 50 : 30);
    b.say(1 + step, Usage{.request = 1, .use = use, .stuck = 0});
  }
  const auto free = [&b](std::uint64_t session) {
    b.ask(session);
    return b.sent<MemoryView>(session)->free;
  };
  CHECK(free(1) == mebibytes(30));
  CHECK(free(2) == mebibytes(10));
}

}  // namespace
}  // namespace sharedgpu
