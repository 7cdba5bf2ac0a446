// SPDX-License-Identifier: Apache-2.0
// The timeouts of the core for sessions that do not obey. Time advances from one timer of the core to the
// next, so each test also checks that the core wakes up in time.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Tenants 1 and 2 need `size` MiB each. The turn of tenant 1 has ended: the tenant has drained, and has
// evicted as ordered. Tenant 2 may restore all of its memory. Each wait begins at an uneven time, so that no
// other timer fires when the wait ends.
Bench second_waits(unsigned size = 60) {
  Bench b;
  b.settle_in(1, 1, size);
  b.queue_up(2, 2, size);
  b.pass_by_timers(10s);
  b.release(1, size, true);
  REQUIRE(b.sent<Evict>(1));
  const Evict evict = *b.sent<Evict>(1);
  b.pass_by_timers(1ms);
  b.tell(1, size, static_cast<unsigned>(evict.allowed.count >> 20));
  REQUIRE(b.sent<Restore>(2));
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(size));
  return b;
}

TEST_CASE("A tenant that may restore all of its memory and makes no progress loses its place after 10 s") {
  Bench b = second_waits();
  b.ask(1);
  REQUIRE(b.until_sent<Revoke>(2) == 10s);
  CHECK(b.notes == std::vector<std::string>{"does not restore its memory; other tenants go first"});
  b.release(2, false, Bench::use(60, 0));
  REQUIRE(b.sent<Restore>(1));
  b.ready(1, 60);
  CHECK(b.open(1));
  SECTION("and waits no more until it is heard of") {
    CHECK_FALSE(b.told[1].page.contended);
    CHECK_FALSE(b.until_sent<Revoke>(1, 1h));
    b.want(2);
    CHECK(b.sent<Revoke>(1));
  }
}

TEST_CASE("Time in which the arbiter itself hangs costs no tenant its place") {
  Bench b = second_waits();
  b.ask(1);
  b.pass_by_timers(5s);
  b.pass(1h);
  CHECK_FALSE(b.sent<Revoke>(2));
  CHECK(b.until_sent<Revoke>(2, 5s));
}

TEST_CASE("Only restored memory extends the time limit, and not without end") {
  Bench b = second_waits();
  SECTION("words") {
    b.pass_by_timers(9s);
    b.tell(2, 60, 0);
    CHECK(b.until_sent<Revoke>(2) == 1s);
  }
  SECTION("memory") {
    const Nanoseconds begun = b.now;
    for (unsigned restored = 1; restored <= 6; ++restored) {
      REQUIRE_FALSE(b.until_sent<Revoke>(2, 9s));
      b.tell(2, 60, restored);
    }
    REQUIRE(b.until_sent<Revoke>(2));
    CHECK(b.now - begun == 60s);
  }
  SECTION("memory, and growth that it is told to restore as well") {
    const Nanoseconds begun = b.now;
    b.pass_by_timers(9s);
    b.grow(2, 61, 1);
    REQUIRE(b.granted(2));
    b.tell(1, 60, 39);
    REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(61));
    for (unsigned restored = 2; restored <= 6; ++restored) {
      REQUIRE_FALSE(b.until_sent<Revoke>(2, 9s));
      b.tell(2, 61, restored);
    }
    REQUIRE(b.until_sent<Revoke>(2));
    CHECK(b.now - begun == 60s);
  }
}

TEST_CASE("While no other tenant waits, a restore has no time limit") {
  Bench b = second_waits();
  b.handle(SessionGone{.session = SessionId{1}});
  CHECK_FALSE(b.until_sent<Revoke>(2, 1h));
}

TEST_CASE("Each GiB to be restored extends the time limit by a second") {
  constexpr GpuUuid kLarge{{3}};
  Bench b;
  b.handle(GpuFound{.gpu = kLarge, .total = gibibytes(12), .capacity = gibibytes(10), .learned = false});
  b.come(1, 1);
  b.attach(1, kLarge);
  b.grow(1, 6144, 0);
  b.tell(1, 6144, 6144);
  b.come(2, 2);
  b.attach(2, kLarge);
  b.grow(2, 6144, 0);
  b.release(2, 0, true);
  b.pass_by_timers(10s);
  b.release(1, 6144, true);
  b.tell(1, 6144, 4096);
  REQUIRE(b.sent<Restore>(2)->allowed == gibibytes(6));
  CHECK(b.until_sent<Revoke>(2) == 16s);
}

// The turn of tenant 1 is over. The tenant has drained, and was ordered to evict 20 of its 60 MiB.
Bench one_evicts() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, true);
  REQUIRE(b.sent<Evict>(1)->allowed == mebibytes(40));
  return b;
}

TEST_CASE(
    "If a session does not evict as asked, its memory counts as staying on the GPU after 10 s, for 10 s") {
  Bench b = one_evicts();
  const Nanoseconds begun = b.now;
  SECTION("in silence") { b.ask(2); }
  SECTION("whatever it says") {
    for (unsigned i = 0; i < 9; ++i) {
      b.pass_by_timers(1s);
      b.tell(1, 60, 60);
      b.want(1);
    }
  }
  // Tenant 1 keeps the memory that it does not evict, so tenant 2 stops entering.
  REQUIRE(b.until_sent<Revoke>(2));
  CHECK(b.notes ==
        std::vector<std::string>{"does not evict its memory; the memory stays on the GPU for now"});
  REQUIRE(b.sent<Restore>(1));
  CHECK(b.sent<Restore>(1)->allowed == mebibytes(60));
  b.ready(1, 60);
  CHECK(b.open(1));
  CHECK(b.now - begun == 10s);
}

TEST_CASE("The time in which the arbiter did not run does not count as time for an eviction") {
  Bench b = one_evicts();
  b.now += 30s;
  b.ask(2);
  CHECK(b.notes.empty());
  const Nanoseconds resumed = b.now;
  REQUIRE(b.until_sent<Revoke>(2));
  CHECK(b.notes.size() == 1);
  // The time in which the arbiter did not run begins with the first timer that was missed.
  CHECK(b.now - resumed > 9s);
  CHECK(b.now - resumed <= 10s);
}

TEST_CASE("A session that did not evict is asked again 10 s later") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, false, Bench::use(60, 60));
  REQUIRE(b.sent<Evict>(1));
  while (b.notes.empty()) b.pass_to_timer();
  b.release(2, true, Bench::use(60, 0));
  SECTION("with nothing else happening") { CHECK(b.until_sent<Evict>(1) == 10s); }
  SECTION("with something else happening") {
    b.ask(2);
    CHECK(b.until_sent<Evict>(1) == 10s);
  }
}

TEST_CASE("A session that reports that it cannot evict is asked again a second later") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.release(1, false, Bench::use(60, 60));
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 60, 60, true);
  CHECK(b.notes.size() == 1);
  b.release(2, true, Bench::use(60, 0));
  SECTION("not before") { CHECK(b.until_sent<Evict>(1) == 1s); }
  SECTION("at once when it does evict after all") {
    b.tell(1, 60, 55);
    REQUIRE(b.sent<Evict>(1));
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(40));
  }
  SECTION("and the log mentions it once a minute") {
    const auto notes_again = [&b] {
      REQUIRE(b.until_sent<Evict>(1) == 1s);
      b.tell(1, 60, 60, true);
      const bool noted = !b.notes.empty();
      if (b.sent<Revoke>(2)) b.release(2, true, Bench::use(60, 0));
      return noted;
    };
    for (int i = 0; i < 59; ++i) REQUIRE_FALSE(notes_again());
    CHECK(notes_again());
  }
}

TEST_CASE(
    "A session that reports that it cannot evict, without having been asked to, is asked nevertheless") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  b.say(1, Usage{.request = 0, .use = Bench::use(60, 60), .stuck = 1});
  b.release(1, 60, true);
  CHECK(b.sent<Evict>(1));
}

TEST_CASE("The time limit of an eviction begins with the order, not with an earlier report") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(2, 2, 30);
  b.queue_up(3, 3, 60);
  b.pass_by_timers(10s);
  b.release(1, 60, false);
  b.release(2, false, Bench::use(30, 30));
  b.tell(1, 60, 10);
  REQUIRE(b.sent<Restore>(3));
  b.ready(3, 60);
  REQUIRE(b.open(3));
  b.pass_by_timers(8s);
  const Nanoseconds begun = b.now;
  b.grow(3, 70, 60);
  REQUIRE((b.sent<Evict>(1) || b.sent<Evict>(2)));
  while (b.notes.empty()) b.pass_to_timer();
  CHECK(b.now - begun == 10s);
}

TEST_CASE("If a tenant does not drain within 10 s, others that fit beside it go first") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 61);
  b.pass_by_timers(10s);
  const Nanoseconds begun = b.now;
  REQUIRE(b.sent<Revoke>(1));
  REQUIRE(b.sent<Restore>(2));
  b.pass_by_timers(1ms);
  b.queue_up(3, 3, 40);
  b.want(3);
  REQUIRE(b.until_sent<Revoke>(2));
  CHECK(b.now - begun == 10s);
  b.release(2, true, Bench::use(61, 0));
  REQUIRE(b.sent<Restore>(3));
  CHECK(b.sent<Restore>(3)->allowed == mebibytes(40));
  b.ready(3, 40);
  CHECK(b.open(3));
}

TEST_CASE("Others evict more every half second for a tenant that finds less memory than computed") {
  Bench b = second_waits();
  b.tell(2, 60, 50);
  REQUIRE(b.until_sent<Evict>(1) == 500ms);
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(30));
  CHECK(b.notes ==
        std::vector<std::string>{"finds less free memory on the GPU than the arbiter has computed"});
  b.ask(2);
  CHECK_FALSE(b.sent<Evict>(1));
  b.tell(1, 60, 30);
  CHECK_FALSE(b.sent<Evict>(1));
  b.pass_by_timers(400ms);
  b.tell(2, 60, 55);
  REQUIRE(b.until_sent<Evict>(1) == 100ms);
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(25));
}

TEST_CASE("Growth that waits for host memory is refused 3 s after the request") {
  Bench b;
  b.handle(SessionCame{.session = SessionId{1},
                       .tenant = TenantId{1},
                       .step = {.job = 1, .step = 0},
                       .cap = {},
                       .host_cap = mebibytes(50),
                       .hello = {}});
  b.attach(1);
  MemoryUse use = Bench::use(10, 10);
  use.host = mebibytes(40);
  b.grow(1, 30, 0);
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  const auto grow = [&](std::uint64_t request, unsigned size) {
    MemoryUse wanted = use;
    wanted.swappable = mebibytes(size);
    wanted.host = mebibytes(60);
    b.say(1, Usage{.request = request, .use = wanted, .stuck = 0});
  };
  SECTION("one or several") {
    grow(7, 20);
    REQUIRE_FALSE(b.sent<Verdict>(1));
    b.pass_by_timers(2s);
    grow(8, 21);
    REQUIRE(b.until_sent<Verdict>(1) == 1s);
    CHECK(b.refused(1));
    CHECK(b.sent<Verdict>(1)->host_most == mebibytes(50));
    std::vector<std::uint64_t> answered;
    for (const Action& action : b.last)
      if (const auto* send = std::get_if<Send>(&action))
        if (send->message.type == MessageType::verdict)
          answered.push_back(send->message.as<Verdict>().request);
    CHECK(answered == std::vector<std::uint64_t>{7, 8});
  }
  SECTION("what others have pinned meanwhile counts") {
    grow(7, 40);
    REQUIRE_FALSE(b.sent<Verdict>(1));
    b.come(2, 2);
    b.attach(2);
    b.grow(2, 0, 0, 70);
    REQUIRE(b.granted(2));
    use.host = {};
    use.swappable = mebibytes(40);
    b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
    REQUIRE(b.sent<Verdict>(1));
    CHECK(b.refused(1));
  }
  SECTION("and no more than one of each of its threads") {
    bool dropped = false;
    for (std::uint64_t request = 1; request <= 4097; ++request) {
      REQUIRE_FALSE(dropped);
      grow(request, 20);
      dropped = std::any_of(b.last.begin(), b.last.end(),
                            [](const Action& action) { return std::holds_alternative<Drop>(action); });
    }
    CHECK(dropped);
  }
}

TEST_CASE("A process that does not answer is polled every quarter of a second") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  REQUIRE(b.sent<Revoke>(1));
  b.ask(2);
  const Nanoseconds begun = b.now;
  std::vector<Nanoseconds> looks;
  while (looks.size() < 3) {
    b.pass_to_timer();
    if (b.looked_at(1)) looks.push_back(b.now - begun);
  }
  CHECK(looks[1] - looks[0] == 250ms);
  CHECK(looks[2] - looks[1] == 250ms);
  b.ask(2);
  CHECK_FALSE(b.looked_at(1));
}

TEST_CASE("The lease of a stopped tenant is taken a second after its gate was closed") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(1001ms);
  b.handle(Looked{.session = SessionId{1}, .stopped = true});
  REQUIRE_FALSE(b.open(1));
  REQUIRE(b.holds(1));
  const Nanoseconds begun = b.now;
  b.ask(2);
  while (b.holds(1)) b.pass_to_timer();
  CHECK(b.now - begun == 1s);
  CHECK(b.notes.size() == 1);
  b.pass_by_timers(1min);
  CHECK(b.notes.empty());
}

TEST_CASE("An announced suspension that never comes is over after 30 s, however often it is announced") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  REQUIRE_FALSE(b.open(1));
  b.release(1, true, Bench::use(60, 60));
  b.tell(1, 60, 0);
  b.pass_by_timers(5s);
  b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
  CHECK(b.until_sent<Restore>(1) == 25s);
}

TEST_CASE("A session that reconnects without a known lease, and does not drain, soon holds a lease") {
  Bench b;
  Hello hello;
  hello.resuming = 1;
  b.come(1, 1, hello);
  b.attach(1);
  REQUIRE(b.sent<Revoke>(1));
  b.tell(1, 60, 60);
  b.come(2, 2);
  b.attach(2);
  b.ask(2);
  REQUIRE_FALSE(b.holds(1));
  const Nanoseconds begun = b.now;
  while (!b.holds(1) && b.timer) b.pass_to_timer();
  CHECK(b.holds(1));
  CHECK(b.now - begun == 350ms);  // the arbiter has polled the process of session 1 within this time
}

}  // namespace
}  // namespace sharedgpu
