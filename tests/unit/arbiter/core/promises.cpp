// SPDX-License-Identifier: Apache-2.0
// The memory that the core promises to sessions, and when it lowers a promise. The tests check a promise by
// the grants, Restores and Evicts that other sessions get.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

bool drops_any(const Bench& b) {
  return std::any_of(b.last.begin(), b.last.end(),
                     [](const Action& action) { return std::holds_alternative<Drop>(action); });
}

void use_context(Bench& b, std::uint64_t id, MemoryUse use, unsigned size) {
  use.context = mebibytes(size);
  b.say(id, Usage{.request = 0, .use = use, .stuck = 0});
}

TEST_CASE("Memory that is no longer pinned is available to others at once") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 0, 0, 30);
  REQUIRE(b.granted(1));
  b.settle_in(2, 2, 70);
  b.say(1, Usage{.request = 0, .use = Bench::use(0, 0, 10), .stuck = 0});
  SECTION("for who runs beside it") {
    b.grow(2, 90, 70);
    CHECK(b.granted(2));
    CHECK(b.open(2));
  }
  SECTION("and no more than that") {
    b.grow(2, 91, 70);
    CHECK(b.refused(2));
  }
  SECTION("and has to be asked for again by who had it") {
    b.grow(2, 90, 70);
    b.grow(1, 0, 0, 11);
    CHECK(b.refused(1));
  }
}

TEST_CASE("The contexts of waiting tenants lower the memory for other tenants") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  use_context(b, 2, Bench::use(60, 0), 25);
  b.say(1, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(1)->free == mebibytes(35));
  b.grow(1, 96, 60);
  CHECK(b.refused(1));
  b.grow(1, 95, 60);
  CHECK(b.granted(1));
}

TEST_CASE("Contexts are believed up to a quarter of the GPU, for all sessions of a tenant there together") {
  Bench b;
  b.settle_in(9, 9, 10);
  const auto free = [&b] {
    b.say(9, MemoryQuery{.request = 9});
    return b.sent<MemoryView>(9)->free;
  };
  b.come(1, 1);
  b.attach(1);
  use_context(b, 1, {}, 90);
  CHECK(free() == mebibytes(80));
  b.come(2, 1);
  b.attach(2);
  use_context(b, 2, {}, 30);
  CHECK(free() == mebibytes(80));
  use_context(b, 1, {}, 10);
  use_context(b, 2, {}, 30);
  CHECK(free() == mebibytes(80));
  b.come(3, 3);
  b.attach(3);
  use_context(b, 3, {}, 30);
  CHECK(free() == mebibytes(50));
}

TEST_CASE("Contexts on another GPU take nothing from what is believed of those here") {
  Bench b;
  b.settle_in(9, 9, 10);
  b.come(1, 1);
  b.attach(1, kOther);
  use_context(b, 1, {}, 30);
  b.come(2, 1);
  b.attach(2);
  use_context(b, 2, {}, 30);
  b.say(9, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(9)->free == mebibytes(80));
}

TEST_CASE("A tenant has no more than its cap, on each GPU, over its processes") {
  Bench b;
  b.come(1, 1, {}, mebibytes(50));
  b.attach(1);
  CHECK(b.sent<Attached>(1)->capacity == mebibytes(50));
  b.come(2, 1, {}, mebibytes(50));
  b.attach(2);
  b.come(3, 1, {}, mebibytes(50));
  b.attach(3, kOther);
  b.grow(1, 30, 0);
  CHECK(b.granted(1));
  b.grow(2, 21, 0);
  CHECK(b.refused(2));
  b.grow(2, 10, 0, 11);
  CHECK(b.refused(2));
  b.grow(2, 20, 0);
  CHECK(b.granted(2));
  b.grow(3, 50, 0);
  CHECK(b.granted(3));
  b.handle(CapSet{.tenant = TenantId{1}, .cap = mebibytes(60)});
  b.grow(2, 30, 0);
  CHECK(b.granted(2));
  b.come(4, 1, {}, mebibytes(70));
  b.grow(2, 40, 0);
  CHECK(b.granted(2));
}

TEST_CASE("A process has one GPU") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  b.attach(1, kOther);
  CHECK(drops_any(b));
  CHECK_FALSE(b.sent<Attached>(1));
  b.attach(1);
  CHECK_FALSE(drops_any(b));
  CHECK(b.sent<Attached>(1));
}

TEST_CASE("A tenant that could not run before does not keep others from pinning more memory") {
  Bench b;
  b.settle_in(2, 2, 85);
  b.come(3, 3);
  b.attach(3);
  b.grow(3, 0, 0, 10);
  REQUIRE(b.granted(3));
  b.grow(3, 0, 0, 16);
  CHECK(b.refused(3));
  use_context(b, 3, Bench::use(0, 0, 10), 30);
  b.grow(3, 0, 0, 11);
  CHECK(b.granted(3));
}

TEST_CASE("A tenant that needs no memory has the GPU, whatever others need") {
  Bench b;
  b.settle_in(1, 1, 100);
  use_context(b, 1, Bench::use(100, 100), 30);
  b.come(2, 2);
  b.attach(2);
  CHECK(b.open(2));
  CHECK(b.open(1));
}

TEST_CASE("The tenant whose turn begins gets room before the other members of the running set") {
  Bench b;
  b.settle_in(1, 1, 100);
  b.queue_up(4, 4, 30);
  b.pass_by_timers(1s);
  b.queue_up(3, 3, 60);
  b.pass_by_timers(9s);
  b.release(1, 100, true);
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 100, 50);
  // Tenant 4 has waited longer, so it gets the turn, although tenant 3 needs more memory.
  CHECK(b.sent<Restore>(4)->allowed == mebibytes(30));
  CHECK(b.sent<Restore>(3)->allowed == mebibytes(20));
}

TEST_CASE("The tenant whose turn begins gets all free memory until it has enough, whatever its number") {
  Bench b;
  b.settle_in(5, 5, 100);
  b.queue_up(4, 4, 60);
  b.pass_by_timers(1s);
  b.queue_up(3, 3, 30);
  b.pass_by_timers(9s);
  b.release(5, 100, true);
  b.tell(5, 100, 60);
  REQUIRE(b.sent<Restore>(4));
  CHECK(b.sent<Restore>(4)->allowed == mebibytes(40));
  CHECK_FALSE(b.sent<Restore>(3));
}

TEST_CASE("Every turn has an epoch of its own") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  std::vector<Epoch> epochs{b.epoch(1), b.epoch(2)};
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t leaves = i % 2 == 0 ? 1 : 2;
    const std::uint64_t comes = 3 - leaves;
    b.pass_by_timers(10s);
    b.release(leaves, 60, true);
    b.tell(leaves, 60, 40);
    REQUIRE(b.sent<Restore>(comes));
    epochs.push_back(b.sent<Restore>(comes)->epoch);
    b.say(comes, Ready{.epoch = Epoch{b.epoch(comes).value - 1}, .use = Bench::use(60, 60)});
    CHECK_FALSE(b.open(comes));  // the message is of an earlier turn
    b.ready(comes, 60);
    REQUIRE(b.open(comes));
  }
  std::sort(epochs.begin(), epochs.end());
  CHECK(std::adjacent_find(epochs.begin(), epochs.end()) == epochs.end());
}

TEST_CASE(
    "A tenant whose memory is all resident enters without asking once all tenants fit, even after an early "
    "eviction") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, true);
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 60, 40);
  b.ready(2, 60);
  b.pass_by_timers(10s);
  b.release(2, 60, true);
  b.tell(2, 60, 40);
  b.ready(1, 60);
  b.pass_by_timers(10s);
  REQUIRE(b.sent<Revoke>(1));
  b.handle(SessionGone{.session = SessionId{2}});
  b.release(1, false, Bench::use(60, 60));
  REQUIRE(b.sent<Restore>(1));
  b.ready(1, 60);
  CHECK(b.open(1));
}

TEST_CASE("A session that was sent no Restore gets no Revoke") {
  Bench b;
  b.settle_in(1, 1, 100);
  b.queue_up(2, 2, 60);
  for (int i = 0; i < 2; ++i) {
    b.pass_by_timers(10s);
    REQUIRE(b.sent<Revoke>(1));
    b.handle(Suspend{.tenant = TenantId{2}, .suspended = true});  // tenant 2 is stopped before any memory is
                                                                  // free for it
    CHECK_FALSE(b.sent<Revoke>(2));
    b.handle(Suspend{.tenant = TenantId{2}, .suspended = false});
    b.release(1, 100, true);
    b.tell(1, 100, 40);
    REQUIRE(b.sent<Restore>(2));
    b.ready(2, 60);
    REQUIRE(b.open(2));
    b.pass_by_timers(10s);
    b.release(2, 60, true);
    b.tell(2, 60, 0);
    b.ready(1, 100);
    REQUIRE(b.open(1));
  }
}

// ---- memory that is pinned in place ----

// Tenant 2, with sessions 2 and 3, is leaving: session 2 has drained and may submit once, session 3 has not
// drained. Tenant 1 is entering.
Bench let_forward() {
  Bench b;
  b.settle_in(2, 2, 50);
  b.settle_in(3, 2, 30);
  b.queue_up(1, 1, 75);
  b.pass(10s);
  b.release(2, 50, true);
  b.pass(100ms);
  REQUIRE(b.sent<Step>(2));
  return b;
}

TEST_CASE("Memory that was to be pinned in place and was freed meanwhile is not pinned") {
  Bench b = let_forward();
  b.settle(2, 50, 10);
  REQUIRE_FALSE(b.sent<Verdict>(2));
  b.tell(2, 40, 40);
  CHECK(b.granted(2));
  b.grow(1, 100, 0);  // the other tenants have no pinned memory
  CHECK(b.granted(1));
}

TEST_CASE("Memory is not pinned later if its pin request was refused") {
  Bench b = let_forward();
  b.pass_by_timers(1ms);
  b.settle(2, 50, 10);
  REQUIRE_FALSE(b.sent<Verdict>(2));
  b.grow(1, 91, 0);
  REQUIRE(b.refused(1));
  const Nanoseconds begun = b.now;
  while (!b.sent<Verdict>(2)) b.pass_to_timer();
  CHECK(b.refused(2));
  CHECK(b.now - begun == 10s);
  b.grow(1, 100, 0);
  CHECK(b.granted(1));
}

}  // namespace
}  // namespace sharedgpu
