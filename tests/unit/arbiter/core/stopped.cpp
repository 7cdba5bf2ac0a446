// SPDX-License-Identifier: Apache-2.0
// Tenants whose processes are stopped, in the core.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

bool asked_to_look(const Bench& b, std::uint64_t id) {
  for (const Action& action : b.last)
    if (const auto* look = std::get_if<Look>(&action))
      if (look->session == SessionId{id}) return true;
  return false;
}

Nanoseconds lease_of(const Bench& b, std::uint64_t id) {
  return b.core->leases().of_tenant(TenantId{id}, b.now);
}

// Tenant 1 has the turn, with 60 of 100 MiB. Tenant 2 waits, with 60 MiB of which nothing is resident.
Bench contended() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 60, 0);
  b.release(2, false, Bench::use(60, 0));
  b.want(2);
  REQUIRE(b.open(1));
  return b;
}

TEST_CASE("A stopped tenant is detected before its turn is over, and its lease is revoked") {
  Bench b = contended();
  b.pass(500ms);
  REQUIRE(asked_to_look(b, 1));
  b.stop(1);
  CHECK_FALSE(b.open(1));
  CHECK(b.sent<Revoke>(1));
  CHECK(b.core->leases().holds(TenantId{1}));  // work that tenant 1 has submitted may be running
  b.pass(1s);
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  CHECK(lease_of(b, 1) == 1500ms);
  // The memory of tenant 1 stays on the GPU. Tenant 3 fits beside this memory; tenant 2 does not fit, and
  // waits.
  b.settle_in(3, 3, 30);
  CHECK(b.open(3));
  CHECK(b.tenant(2).phase == Phase::out);
  b.pass(1h);
  CHECK(b.tenant(2).phase == Phase::out);
  CHECK(b.session(1).use.resident == mebibytes(60));
  CHECK(lease_of(b, 1) == 1500ms);
}

TEST_CASE("A resumed tenant holds a lease until it has drained, and then waits for a turn") {
  Bench b = contended();
  b.pass(250ms);
  b.stop(1);
  b.pass(1s);
  REQUIRE_FALSE(b.core->leases().holds(TenantId{1}));
  b.pass(10s);
  SECTION("as it is seen") { b.go_on(1); }
  SECTION("as it says something") { b.tell(1, 60, 60); }
  CHECK(b.core->leases().holds(TenantId{1}));
  b.now += 5ms;
  b.release(1, 60, true);
  CHECK(lease_of(b, 1) == 1255ms);
  CHECK(b.tenant(1).phase == Phase::out);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed.count >> 20 == 40);  // 40 MiB make room for tenant 2, which enters
  CHECK(b.tenant(2).in_set());
}

TEST_CASE("A tenant that is resumed and stopped again loses its lease after the same time as before") {
  Bench b;
  const auto holds = [&] { return b.core->leases().holds(TenantId{1}); };
  b.settle_in(1, 1, 80);
  b.queue_up(2, 2, 80);
  b.want(2);
  b.pass(10s);  // the turn of tenant 1 is over
  REQUIRE_FALSE(b.open(1));
  b.stop(1);
  b.pass(1s);
  REQUIRE_FALSE(holds());
  b.go_on(1);
  REQUIRE(holds());  // tenant 1 may submit once more
  b.stop(1);
  b.pass(999ms);
  CHECK(holds());
  b.pass(1ms);
  CHECK_FALSE(holds());
}

// Tenant 1 runs with three processes of 20 MiB each; tenant 2 waits with 60 MiB.
Bench three_run() {
  Bench b;
  for (std::uint64_t id : {1, 3, 4}) b.settle_in(id, 1, 20);
  b.queue_up(2, 2, 60);
  REQUIRE(b.open(1));
  REQUIRE(b.told[4].page.contended);
  return b;
}

std::vector<std::uint64_t> looked_at(const Bench& b) {
  std::vector<std::uint64_t> all;
  for (const Action& action : b.last)
    if (const auto* look = std::get_if<Look>(&action)) all.push_back(look->session.value);
  return all;
}

TEST_CASE("One process of a running tenant is polled each half second, one process after another") {
  Bench b = three_run();
  const Nanoseconds begun = b.now;
  std::vector<std::uint64_t> order;
  while (order.size() < 6) {
    b.pass_to_timer();
    for (const std::uint64_t id : looked_at(b)) order.push_back(id);
    CHECK(order.size() == static_cast<std::size_t>((b.now - begun) / 500ms));
  }
  CHECK(order == std::vector<std::uint64_t>{1, 3, 4, 1, 3, 4});
}

TEST_CASE("If one process of a running tenant is stopped, the other processes are polled, too") {
  Bench b = three_run();
  b.pass(500ms);
  REQUIRE(looked_at(b) == std::vector<std::uint64_t>{1});
  b.stop(1);
  CHECK(looked_at(b) == std::vector<std::uint64_t>{3, 4});
  SECTION("and the tenant leaves as all are") {
    b.stop(3);
    CHECK(b.open(1));
    b.stop(4);
    CHECK_FALSE(b.open(1));
    CHECK(b.sent<Revoke>(1));
  }
  SECTION("and every quarter of a second from then on, until none is") {
    CHECK(b.open(1));
    b.pass(249ms);
    CHECK(looked_at(b).empty());
    b.pass(1ms);
    CHECK(looked_at(b) == std::vector<std::uint64_t>{1, 3, 4});
    b.go_on(1);
    b.pass(500ms);
    CHECK(looked_at(b).size() == 1);
  }
}

TEST_CASE(
    "A stopped process of a running tenant is detected within half a second for each of its processes") {
  Bench b = three_run();
  const std::uint64_t stopped = GENERATE(1, 3, 4);
  const Nanoseconds begun = b.now;
  while (!asked_to_look(b, stopped)) b.pass_to_timer();
  CHECK(b.now - begun <= 1500ms);
}

TEST_CASE("Running tenants are polled at the same times, whenever others began to wait for them") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.come(4, 4);
  b.attach(4, kOther);
  b.grow(4, 60, 0);
  b.tell(4, 60, 60);
  b.queue_up(2, 2, 60);
  b.now += 100ms;
  b.come(5, 5);
  b.attach(5, kOther);
  b.grow(5, 60, 0);
  b.release(5, 0, true);
  REQUIRE(b.told[1].page.contended);
  REQUIRE(b.told[4].page.contended);
  b.pass(400ms);
  CHECK(asked_to_look(b, 1));
  CHECK(asked_to_look(b, 4));
}

TEST_CASE("A timer event concerns only tenants for which something is due") {
  Bench b = contended();
  b.come(3, 3);
  b.attach(3, kOther);
  b.pass_by_timers(100ms);  // until all effects of session 3's arrival have ended
  b.pass_to_timer();
  const Sighting seen = b.core->sighting(TimerFired{}, b.last);
  CHECK_FALSE(seen.whole);
  std::vector<std::uint64_t> tenants;
  for (const Sighting::Tenant& tenant : seen.tenants) tenants.push_back(tenant.id.value);
  CHECK(tenants == std::vector<std::uint64_t>{1, 2});
  CHECK(seen.sessions.size() == 2);
}

TEST_CASE("A growth request of a stopped tenant is answered when the tenant is resumed") {
  Bench b;
  b.settle_in(3, 3, 30);
  b.settle_in(1, 1, 60);
  b.grow(1, 80, 60);
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  b.pass(250ms);
  b.stop(1);
  b.pass(2s);
  REQUIRE_FALSE(b.core->leases().holds(TenantId{1}));
  b.handle(SessionGone{SessionId{3}});
  b.pass(10s);
  CHECK_FALSE(b.sent<Verdict>(1));
  CHECK(b.session(1).requests == 1);
  b.go_on(1);
  REQUIRE(b.granted(1));
  CHECK(b.sent<Verdict>(1)->allowed.count >> 20 == 80);
}

TEST_CASE("A tenant that is stopped while it enters gives up its place") {
  Bench b = contended();
  b.pass(10s);
  b.release(1, 60, true);
  REQUIRE(b.tenant(2).phase == Phase::entering);
  b.tell(1, 60, 40);
  REQUIRE(b.session(2).restoring);
  b.pass(250ms);
  REQUIRE(asked_to_look(b, 2));
  b.stop(2);
  CHECK(b.tenant(2).phase == Phase::leaving);
  CHECK(b.sent<Revoke>(2));
  // The session may have obeyed its last Restore, so other tenants cannot get this memory yet.
  CHECK_FALSE(b.tenant(1).in_set());
  b.go_on(2);
  CHECK_FALSE(b.core->leases().holds(TenantId{2}));  // tenant 2 never had a lease
  b.release(2, true, Bench::use(60, 0));
  CHECK(b.tenant(1).in_set());
}

TEST_CASE("A stopped tenant does not evict, and is ordered again when it is resumed") {
  Bench b = contended();
  b.pass(10s);
  b.release(1, 60, true);
  REQUIRE(b.session(1).resident_limit.count >> 20 == 40);
  b.pass(250ms);
  REQUIRE(asked_to_look(b, 1));
  b.stop(1);
  CHECK(b.session(1).resident_limit == mebibytes(60));
  CHECK_FALSE(b.tenant(2).in_set());
  b.go_on(1);
  CHECK(b.tenant(1).in_set());  // tenant 1 requested the GPU before the other tenants that can run
}

TEST_CASE("A tenant some of whose processes are stopped waits for the others to drain") {
  Bench b;
  b.settle_in(1, 1, 30);
  b.settle_in(4, 1, 30);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 60, 0);
  b.release(2, false, Bench::use(60, 0));
  b.want(2);
  b.pass(250ms);
  b.stop(1);
  CHECK(b.open(4));  // the gate of session 4 stays open until the turn ends
  b.pass(10s);
  CHECK_FALSE(b.open(4));
  b.pass(5s);
  CHECK(b.core->leases().holds(TenantId{1}));
  b.release(4, 30, true);
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  CHECK(b.tenant(1).phase == Phase::leaving);
  CHECK(b.tenant(2).in_set());  // session 4 of tenant 1 can evict
  CHECK(b.sent<Evict>(4));
  CHECK_FALSE(b.sent<Step>(4));
  b.tell(4, 30, 0);
  b.ready(2, 60);
  CHECK(b.open(2));
  b.pass(20s);
  CHECK(b.open(2));  // session 1 is still stopped, and session 4 does not want the GPU
}

TEST_CASE("A stopped process counts as idle: if the tenant's other processes are idle, its turn ends") {
  Bench b;
  b.settle_in(1, 1, 30);
  b.settle_in(4, 1, 30);
  b.queue_up(2, 2, 60);
  REQUIRE(b.open(1));
  b.pass(250ms);
  b.stop(4);
  REQUIRE(b.open(1));
  b.say(1, Idle{.epoch = b.epoch(1), .idle = 100ms});
  CHECK_FALSE(b.open(1));
  CHECK(b.sent<Revoke>(1));
}

TEST_CASE(
    "A tenant whose suspension is announced drains, evicts all of its memory, and returns when it is "
    "resumed") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  CHECK_FALSE(b.open(1));
  REQUIRE(b.sent<Revoke>(1));
  b.release(1, 60, true);
  CHECK(b.sent<Prepare>(1).has_value() == false);  // the Prepare was sent earlier, with the Revoke
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == Bytes{});
  CHECK_FALSE(b.tenant(1).in_set());  // tenant 1 wants to run, but waits
  b.tell(1, 60, 10);
  b.pass(250ms);
  b.stop(1);
  CHECK(b.session(1).resident_limit == mebibytes(10));
  b.pass(1h);
  CHECK_FALSE(b.tenant(1).in_set());
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = false});
  CHECK_FALSE(b.tenant(1).in_set());
  b.go_on(1);
  CHECK(b.tenant(1).in_set());
  CHECK(b.sent<Restore>(1)->allowed == mebibytes(60));
}

TEST_CASE("A tenant whose announced suspension never comes counts as resumed after a while") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  b.release(1, 60, true);
  b.tell(1, 60, 0);
  CHECK_FALSE(b.tenant(1).in_set());
  b.pass(30s);
  CHECK(b.tenant(1).in_set());
}

// The lease of the stopped tenant was revoked, so the core does not know whether the reconnected session has
// drained.
TEST_CASE("A tenant that was stopped when the arbiter died may submit once when it is resumed") {
  Recovered recovered;
  recovered.expected_sessions = 2;
  Bench b(std::move(recovered));
  Hello hello;
  hello.resuming = hello.held = hello.wants = 1;
  for (const std::uint64_t id : {1, 4}) {
    b.come(id, 1, hello);
    b.attach(id);
    REQUIRE(b.sent<Revoke>(id));
    b.tell(id, 30, 30);
  }
  b.release(4, 30, true);  // the work of session 1 waits for the next submission of session 4
  SECTION("it went on meanwhile") { b.pass(2s); }
  SECTION("it is still stopped") {
    b.stop(1);
    b.pass(10s);
    REQUIRE_FALSE(b.core->in_grace());
    CHECK_FALSE(b.core->leases().holds(TenantId{1}));
    b.go_on(1);
  }
  CHECK(b.core->leases().holds(TenantId{1}));
  REQUIRE(b.sent<Step>(4));
  b.now += 5ms;
  b.release(1, 30, true);
  b.release(4, 30, true);
  CHECK(lease_of(b, 1) == 5ms);
}

TEST_CASE("A process that works on after its connection broke holds a lease until it has drained") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.handle(SessionGone{SessionId{1}});
  Hello hello;
  hello.resuming = hello.held = 1;
  b.come(2, 1, hello);
  b.attach(2);
  REQUIRE(b.sent<Revoke>(2));
  b.tell(2, 60, 60);
  b.pass(250ms);
  REQUIRE(asked_to_look(b, 2));
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  b.pass(100ms);
  CHECK(b.core->leases().holds(TenantId{1}));
  b.pass(20ms);
  b.release(2, 60, false);
  CHECK(lease_of(b, 1) == 20ms);
}

TEST_CASE("A session that reconnects while its tenant enters, and had no Restore yet, drains first") {
  Bench b;
  b.settle_in(1, 1, 100);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 60, 0);
  b.release(2, false, Bench::use(60, 0));
  b.want(2);
  b.pass(10s);
  b.release(1, 100, true);
  REQUIRE(b.tenant(2).phase == Phase::entering);
  REQUIRE_FALSE(b.session(2).restoring);
  Hello hello;
  hello.resuming = hello.held = 1;
  b.come(3, 2, hello);
  b.attach(3);
  CHECK(b.sent<Revoke>(3));
  CHECK(b.tenant(2).phase == Phase::leaving);
  b.release(3, true, Bench::use(0, 0));
  CHECK(b.tenant(2).phase == Phase::out);
}

}  // namespace
}  // namespace sharedgpu
