// SPDX-License-Identifier: Apache-2.0
// Tenants that do not leave the GPU after their lease was revoked: for how long others wait for them, and
// what is done about it. Time passes by the core's own timers.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Response = Overstay::Response;

void stop(Bench& b, std::uint64_t id) { b.handle(Looked{.session = SessionId{id}, .stopped = true}); }
void go_on(Bench& b, std::uint64_t id) { b.handle(Looked{.session = SessionId{id}, .stopped = false}); }

std::vector<Response> responses(const Bench& b) {
  std::vector<Response> all;
  for (const Overstay& overstay : b.overstays) all.push_back(overstay.response);
  return all;
}

Bench bench(const OveruseRules& rules = {}) { return Bench({}, {.fixed = 10s}, {}, rules); }

// 1 has 60 and is in its turn, which is over when this returns; 2 needs 60.
Bench revoked(const OveruseRules& rules = {}) {
  Bench b = bench(rules);
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

// The same; but 1 was granted 60 and never told that there is anything.
Bench revoked_and_empty() {
  Bench b = bench();
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 60, 0);
  REQUIRE(b.granted(1));
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  return b;
}

// ---- nothing on the GPU ----

TEST_CASE("A tenant that has nothing on the GPU and does not answer loses its lease after 2 s") {
  Bench b = revoked_and_empty();
  b.pass_by_timers(2s - 1ns);
  CHECK(b.holds(1));
  CHECK_FALSE(b.sent<Restore>(2));
  b.pass_by_timers(1ns);
  CHECK_FALSE(b.holds(1));
  CHECK(b.notes ==
        std::vector<std::string>{"does not answer, and has nothing on the GPU; its lease goes to others"});
  // What it was granted counts no more, and others get it.
  CHECK(b.gpu().promised == mebibytes(60));
  REQUIRE(b.session(2).resident_limit == mebibytes(60));
  b.ready(2, 60);
  CHECK(b.open(2));
  SECTION("and is not served before it answers") {
    b.want(1);
    b.pass_by_timers(1h);
    CHECK(b.open(2));
    CHECK(responses(b).empty());
    b.release(1, true, Bench::use(60, 0));
    CHECK(b.sent<Revoke>(2));
  }
  SECTION("and takes no room by words") {
    b.tell(1, 60, 60);
    CHECK(b.session(1).use.resident == Bytes{});
    CHECK(b.open(2));
  }
}

TEST_CASE("A tenant that has a context, pinned memory or any memory on the GPU is waited for") {
  MemoryUse use = Bench::use(60, 0);
  SECTION("a context") { use.context = mebibytes(1); }
  SECTION("pinned memory") { use.pinned = mebibytes(1); }
  SECTION("memory") { use.resident = mebibytes(1); }
  Bench b = bench();
  b.come(1, 1);
  b.attach(1);
  b.say(1, Usage{.request = 1, .use = use, .stuck = 0});
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE(b.holds(1));
  REQUIRE_FALSE(b.open(1));
  b.pass_by_timers(1min);
  CHECK(b.holds(1));
}

TEST_CASE("A session that has nothing and does not answer ends its tenant's turn for nobody else") {
  Bench b = bench();
  b.settle_in(1, 1, 60);
  b.come(3, 1);
  b.attach(3);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.pass_by_timers(5s);
  CHECK(b.holds(1));
  SECTION("which has ended when the others have drained") {
    b.release(1, 60, true);
    CHECK_FALSE(b.holds(1));
    CHECK(b.sent<Evict>(1));
    b.release(3, false, Bench::use(0, 0));
    CHECK(b.tenant(1).phase == Phase::out);
  }
  SECTION("and it is not let submit for them") {
    b.want(3);
    CHECK_FALSE(b.until_sent<Step>(3));
  }
}

TEST_CASE("A session that came back, has nothing and does not answer is not lent a lease") {
  Bench b = bench();
  b.settle_in(2, 2, 60);
  Hello back;
  back.resuming = 1;
  b.come(1, 1, back);
  b.attach(1);
  REQUIRE(b.sent<Revoke>(1));
  b.tell(1, 0, 0);
  b.pass_by_timers(1s);
  REQUIRE(b.holds(1));
  b.pass_by_timers(1s);
  CHECK_FALSE(b.holds(1));
  b.pass_by_timers(1min);
  CHECK_FALSE(b.holds(1));
}

TEST_CASE("A session whose memory is not known is waited for") {
  Bench b = bench();
  b.settle_in(2, 2, 60);
  Hello back;
  back.resuming = 1;
  b.come(1, 1, back);
  b.attach(1);
  b.pass_by_timers(1min);
  CHECK(b.holds(1));
}

// ---- the most ----

TEST_CASE("Overuse is noted after 10 s, and after MaxOveruse again: once in a turn") {
  Bench b = revoked();
  b.pass_by_timers(10s - 1ns);
  CHECK(b.overstays.empty());
  b.pass_by_timers(1ns);
  REQUIRE(b.overstays.size() == 1);
  CHECK(b.overstays[0].tenant == TenantId{1});
  CHECK(b.overstays[0].gpu == kGpu);
  CHECK(b.overstays[0].lasted == 10s);
  b.pass_by_timers(290s - 1ns);
  CHECK(responses(b) == std::vector{Response::note});
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
  CHECK(b.overstays[1].lasted == 5min);
  b.pass_by_timers(1h);
  CHECK(b.overstays.size() == 2);
  SECTION("and in the next one anew") {
    b.release(2, true, Bench::use(60, 0));  // it had to leave for want of room
    b.release(1, 60, true);
    b.tell(1, 60, 40);
    b.ready(2, 60);
    REQUIRE(b.open(2));
    b.pass_by_timers(10s);
    b.release(2, 60, true);
    b.tell(2, 60, 40);
    b.ready(1, 60);
    REQUIRE(b.open(1));
    b.pass_by_timers(10s);
    REQUIRE_FALSE(b.open(1));
    b.pass_by_timers(5min);
    CHECK(responses(b) == std::vector{Response::note, Response::warn, Response::note, Response::warn});
  }
}

TEST_CASE("Overuse that exceeds a short MaxOveruse is not noted beside that") {
  Bench b = revoked({.most = 3s, .cancel = true});
  b.pass_by_timers(1h);
  CHECK(responses(b) == std::vector{Response::cancel});
  CHECK(b.overstays[0].lasted == 3s);
}

TEST_CASE("A tenant that releases just before MaxOveruse is left alone") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(5min - 1ns);
  b.release(1, 60, true);
  b.pass_by_timers(1ns);
  b.pass_by_timers(1s);
  CHECK(responses(b) == std::vector{Response::note});
  CHECK_FALSE(b.tenant(1).overdue);
}

TEST_CASE("Overuse is what others wait for") {
  Bench b = revoked();
  b.pass_by_timers(4min);
  b.handle(SessionGone{.session = SessionId{2}});
  CHECK_FALSE(b.tenant(1).overdue);
  b.pass_by_timers(10min);
  CHECK(responses(b) == std::vector{Response::note});
  b.queue_up(3, 3, 60);
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->since == b.now);
  b.pass_by_timers(5min - 1ns);
  CHECK(b.overstays.size() == 1);
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
}

TEST_CASE("Overuse shows from the first moment, with the GPU that others wait for") {
  Bench b = revoked();
  const auto overdue = b.tenant(1).overdue;
  REQUIRE(overdue);
  CHECK(overdue->gpu == kGpu);
  CHECK(overdue->since == b.now);
  CHECK_FALSE(overdue->stopped);
  CHECK_FALSE(b.tenant(2).overdue);
}

// ---- several GPUs ----

TEST_CASE("Overuse is on the GPU where the tenant has not drained, and others wait") {
  Bench b = bench();
  b.settle_in(1, 1, 60);
  b.come(4, 1);
  b.attach(4, kOther);
  b.grow(4, 60, 0);
  b.tell(4, 60, 60);
  b.queue_up(2, 2, 60);
  b.come(3, 3);
  b.attach(3, kOther);
  b.grow(3, 30, 0);
  b.tell(3, 30, 30);
  b.pass_by_timers(10s);
  REQUIRE_FALSE(b.open(1));
  REQUIRE_FALSE(b.open(4));
  REQUIRE(b.tenant(1).overdue);
  SECTION("the one that 2 waits for") {
    b.release(4, 60, false);
    b.pass_by_timers(5min);
    REQUIRE(b.overstays.size() == 2);
    CHECK(b.overstays[1].gpu == kGpu);
  }
  SECTION("and not where nobody waits") {
    b.release(1, 60, false);
    CHECK_FALSE(b.tenant(1).overdue);
    b.pass_by_timers(1h);
    CHECK(b.overstays.empty());
  }
}

// ---- processes that are stopped ----

TEST_CASE("A stopped process is waited for without a response, and that shows") {
  Bench b = revoked({.cancel = true});
  stop(b, 1);
  b.pass_by_timers(1h);
  CHECK(b.overstays.empty());
  REQUIRE(b.tenant(1).overdue);
  CHECK(b.tenant(1).overdue->stopped);
  CHECK(b.tenant(1).overdue->since == b.now - 1h);
}

TEST_CASE("The time in which a process was stopped is no overuse, and the time before it is") {
  Bench b = revoked({.cancel = true});
  b.pass_by_timers(4min);
  stop(b, 1);
  b.pass_by_timers(1h);
  go_on(b, 1);
  CHECK(responses(b) == std::vector{Response::note});
  CHECK_FALSE(b.tenant(1).overdue->stopped);
  b.pass_by_timers(1min - 1ns);
  CHECK(responses(b) == std::vector{Response::note});
  b.pass_by_timers(1ns);
  CHECK(responses(b) == std::vector{Response::note, Response::cancel});
}

TEST_CASE("A process that is stopped beside one that runs protects nobody") {
  Bench b = bench();
  b.settle_in(1, 1, 30);
  b.settle_in(3, 1, 30);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  stop(b, 1);
  b.pass_by_timers(5min);
  CHECK(responses(b) == std::vector{Response::note, Response::warn});
  CHECK_FALSE(b.tenant(1).overdue->stopped);
}

}  // namespace
}  // namespace sharedgpu
