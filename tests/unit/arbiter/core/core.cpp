// SPDX-License-Identifier: Apache-2.0
// The core, one rule at a time. tests/property/arbiter has the properties for all sequences of events.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

TEST_CASE("While everything fits, every gate is open and nothing moves") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.settle_in(2, 2, 60);
  CHECK(b.open(1));
  CHECK(b.open(2));
  b.pass(1h);
  CHECK(b.open(1));
  CHECK(b.open(2));
  CHECK(b.core->leases().of_tenant(TenantId{1}, b.now) == 1h);
}

TEST_CASE("Sessions know whether their GPU is oversubscribed, also while nobody waits") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  CHECK_FALSE(b.session(1).oversubscribed);
  b.grow(2, 75, 0);
  CHECK(b.session(1).oversubscribed);
  CHECK(b.session(2).oversubscribed);
  b.release(2, 0, false);
  CHECK_FALSE(b.session(1).contended);
  CHECK(b.session(1).oversubscribed);
  b.handle(SessionGone{SessionId{2}});
  CHECK_FALSE(b.session(1).oversubscribed);
}

TEST_CASE("A growing tenant that leaves before its turn is over gets an answer") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  CHECK(b.open(2));
  b.grow(2, 75, 0);
  CHECK_FALSE(b.open(2));
  CHECK(b.sent<Revoke>(2));
  CHECK_FALSE(b.sent<Verdict>(2));  // the drain might wait for the next submission
  b.release(2, 0, false);
  CHECK(b.granted(2));
  CHECK(b.sent<Verdict>(2)->allowed == Bytes{});
  CHECK(b.open(1));
}

TEST_CASE("The processes of a step together get no more memory than their host memory can hold") {
  Bench b;
  auto grow = [&b](std::uint64_t session, unsigned size, unsigned limit) {
    MemoryUse use = Bench::use(size, 0);
    use.host_limit = mebibytes(limit);
    b.say(session, Usage{.request = 1, .use = use, .stuck = 0});
    return b.granted(session);
  };
  for (const std::uint64_t session : {1, 2, 3}) b.come(session, 1);
  b.attach(1);
  b.attach(2);
  b.attach(3, kOther);
  CHECK(grow(1, 20, 50));
  CHECK(grow(2, 20, 50));
  CHECK_FALSE(grow(3, 20, 50));  // a session on another GPU, but with the same host memory
  CHECK(grow(3, 10, 50));
  CHECK_FALSE(grow(1, 21, 50));
  CHECK(grow(1, 21, 60));  // the limit was raised to 60 MiB
  CHECK(grow(2, 15, 10));  // less memory than before is always granted
  CHECK(grow(3, 30, 0));

  b.handle(SessionCame{.session = SessionId{4},
                       .tenant = TenantId{1},
                       .step = {.job = 1, .step = 1},
                       .cap = {},
                       .expected = false,
                       .hello = {}});
  b.attach(4);
  CHECK(grow(4, 20, 30));  // session 4 is in another step, which has its own limit
}

TEST_CASE(
    "All processes of a tenant, on all GPUs, together get no more memory than the site lets them swap") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  b.handle(SessionCame{.session = SessionId{2},
                       .tenant = TenantId{1},
                       .step = {.job = 1, .step = 1},
                       .cap = {},
                       .host_cap = mebibytes(50),
                       .hello = {}});
  b.attach(2, kOther);
  b.grow(1, 30, 0);
  CHECK(b.granted(1));
  b.grow(2, 21, 0);
  REQUIRE(b.sent<Verdict>(2));
  CHECK(b.sent<Verdict>(2)->granted == 0);
  CHECK(b.sent<Verdict>(2)->host_most == mebibytes(50));
  b.grow(2, 0, 0, 21);
  CHECK(b.granted(2));  // pinned memory never leaves the GPU
  b.grow(2, 20, 0, 21);
  CHECK(b.granted(2));
  CHECK(b.tenant(1).host.budget == mebibytes(50));

  SECTION("what is freed counts until its host memory is given back") {
    MemoryUse use = Bench::use(10, 0);
    use.host = mebibytes(30);
    b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
    b.grow(2, 21, 0, 21);
    CHECK_FALSE(b.sent<Verdict>(2));  // no refusal: session 1 will soon free host memory
    CHECK(b.session(2).use.swappable == mebibytes(20));
    SECTION("and is granted then") {
      b.tell(1, 10, 0);
      CHECK(b.granted(2));
      CHECK(b.session(2).use.swappable == mebibytes(21));
      b.grow(2, 40, 0, 21);
      CHECK(b.granted(2));
    }
    SECTION("or not, where it is not given back") {
      b.pass(2s);
      CHECK_FALSE(b.sent<Verdict>(2));
      b.pass(1s);
      REQUIRE(b.sent<Verdict>(2));
      CHECK(b.sent<Verdict>(2)->granted == 0);
      CHECK(b.sent<Verdict>(2)->host_most == mebibytes(50));
      CHECK(b.session(2).use.swappable == mebibytes(20));
    }
  }
  SECTION("a bound that was changed") {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = mebibytes(40)});
    b.grow(1, 29, 0);
    CHECK(b.granted(1));  // less memory than before is always granted
    b.grow(1, 30, 0);
    CHECK_FALSE(b.granted(1));
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = {}});
    b.grow(1, 60, 0);
    CHECK(b.granted(1));
    CHECK(b.tenant(1).host.budget == std::nullopt);
  }
  SECTION("cuMemGetInfo tells of it") {
    b.say(1, MemoryQuery{.request = 9});
    CHECK(b.sent<MemoryView>(1)->free == Bytes{});
    b.tell(1, 25, 0);
    b.say(1, MemoryQuery{.request = 9});
    CHECK(b.sent<MemoryView>(1)->free == mebibytes(5));
    CHECK(b.sent<MemoryView>(1)->total == mebibytes(100));
  }
}

TEST_CASE("The steps of a job together get no more memory than the job's limit can hold") {
  Bench b;
  for (const std::uint64_t session : {1, 2}) {
    b.handle(SessionCame{.session = SessionId{session},
                         .tenant = TenantId{1},
                         .step = {.job = 1, .step = static_cast<std::uint32_t>(session)},
                         .cap = {},
                         .hello = {}});
    b.attach(session);
  }
  auto grow = [&b](std::uint64_t session, unsigned size) {
    MemoryUse use = Bench::use(size, 0);
    use.host_limit = mebibytes(50);
    b.say(session, Usage{.request = 1, .use = use, .stuck = 0, .job_host_limit = mebibytes(60)});
    return b.granted(session);
  };
  CHECK(grow(1, 40));
  CHECK_FALSE(grow(2, 21));
  CHECK(b.sent<Verdict>(2)->host_most == mebibytes(60));
  CHECK(grow(2, 15));
  b.say(2, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(2)->free == mebibytes(5));
}

TEST_CASE("The limits of a tenant's host memory are shown apart") {
  Bench b;
  b.settle_in(1, 1, 20);
  CHECK_FALSE(b.tenant(1).host.units);
  CHECK_FALSE(b.tenant(1).host.job);
  CHECK_FALSE(b.tenant(1).host.budget);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = mebibytes(60)});
  const auto report = [&b](unsigned step, unsigned job) {
    MemoryUse use = Bench::use(20, 20);
    use.host_limit = mebibytes(step);
    b.say(1, Usage{.request = 0, .use = use, .job_host_limit = mebibytes(job)});
  };
  report(50, 70);
  CHECK(b.tenant(1).host.units == mebibytes(60));
  CHECK(b.tenant(1).host.job == mebibytes(102));  // including the job's margin of 32 MiB
  CHECK(b.tenant(1).host.budget == mebibytes(50));
  report(80, 80);
  CHECK(b.tenant(1).host.job == mebibytes(112));
  CHECK(b.tenant(1).host.budget == mebibytes(60));
  report(0, 0);
  CHECK_FALSE(b.tenant(1).host.job);
}

TEST_CASE("A limit of the host that changes while a tenant runs applies at once") {
  Bench b;
  b.settle_in(1, 1, 60);
  const auto report = [&b](unsigned swappable, unsigned resident, unsigned limit, std::uint64_t request,
                           bool stuck = false) {
    MemoryUse use = Bench::use(swappable, resident);
    use.host_limit = mebibytes(limit);
    b.say(1, Usage{.request = request, .use = use, .stuck = stuck, .job_host_limit = mebibytes(limit)});
  };
  report(60, 60, 70, 0);
  report(80, 60, 70, 1);
  CHECK(b.refused(1));
  report(60, 60, 80, 0);
  report(80, 60, 80, 2);
  CHECK(b.granted(1));
  report(80, 80, 80, 0);

  SECTION("downwards, below what is on the host: what is there stays, and nobody counts on more") {
    b.queue_up(2, 2, 60);
    REQUIRE(b.until_sent<Revoke>(1));
    b.release(1, true, Bench::use(80, 80));
    REQUIRE(b.sent<Evict>(1));
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(40));
    report(80, 50, 80, 0);
    report(80, 50, 10, 0, true);  // the limit falls, and the tenant cannot evict the rest of its memory
    CHECK(b.tenant(1).host.budget == mebibytes(10));
    CHECK(b.session(1).use.resident == mebibytes(50));
    CHECK(b.session(1).use.swappable == mebibytes(80));
    CHECK(b.tenant(2).phase != Phase::running);
    report(81, 50, 10, 3);
    CHECK(b.refused(1));
    report(80, 50, 80, 0);
    report(80, 40, 80, 0);
    CHECK(b.session(1).use.resident == mebibytes(40));
  }
}

TEST_CASE("A refusal is explained by the limit that refuses it, and by what would suffice") {
  Bench b;
  b.settle_in(1, 1, 20);
  const auto explain = [&b](unsigned size, std::uint64_t session = 1) {
    return b.core->explain(SessionId{session}, mebibytes(size));
  };
  const auto limit = [&b](unsigned step, unsigned job) {
    MemoryUse use = Bench::use(20, 20);
    use.host = mebibytes(3);
    use.host_limit = mebibytes(step);
    b.say(1, Usage{.request = 0, .use = use, .job_host_limit = mebibytes(job)});
  };
  CHECK(explain(200).bound == Bound::none);  // plain CUDA would refuse this growth as well
  CHECK(explain(1, 9).bound == Bound::none);

  SECTION("by the host memory of its step, or of all steps") {
    limit(50, 60);
    CHECK(explain(30).bound == Bound::none);
    CHECK(explain(31).bound == Bound::job);
    CHECK(explain(31).most == mebibytes(50));
    CHECK(explain(31).needed == mebibytes(51));
    CHECK(explain(31).host == mebibytes(3));
    CHECK(explain(31).brought == Bytes{});
    b.handle(SessionCame{.session = SessionId{2},
                         .tenant = TenantId{1},
                         .step = {.job = 1, .step = 1},
                         .cap = {},
                         .hello = {}});
    b.attach(2);
    b.grow(2, 30, 0);
    CHECK(explain(11).bound == Bound::job);
    CHECK(explain(11).most == mebibytes(60));
    CHECK(explain(11).needed == mebibytes(61));
    CHECK(explain(31).needed == mebibytes(81));  // both limits are too small
  }
  SECTION("by that of its units, even if its job has too little as well") {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .host_cap = mebibytes(50), .claims = {.units = 2}});
    limit(40, 40);
    CHECK(explain(21).bound == Bound::job);
    CHECK(explain(21).brought == mebibytes(50));
    const RefusalReply why = explain(31);
    CHECK(why.bound == Bound::units);
    CHECK(why.most == mebibytes(50));
    CHECK(why.needed == mebibytes(51));
    CHECK(why.units == 3);
    CHECK(explain(55).units == 3);
    CHECK(explain(56).units == 4);
  }
  SECTION("by its own limit") {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = mebibytes(50)});
    CHECK(explain(30).bound == Bound::none);
    CHECK(explain(31).bound == Bound::own);
    CHECK(explain(31).most == mebibytes(50));
    CHECK(explain(31).needed == mebibytes(51));
    const auto pin = [&b](unsigned size) { return b.core->explain(SessionId{1}, mebibytes(size), true); };
    limit(5, 5);  // pinned memory needs no host memory
    CHECK(pin(30).bound == Bound::none);
    CHECK(pin(31).bound == Bound::own);
    CHECK(pin(31).needed == mebibytes(51));
    CHECK(pin(81).bound == Bound::gpu);
  }
  SECTION("by the GPU, since nothing else would help") {
    limit(50, 50);
    CHECK(explain(80).bound == Bound::job);
    CHECK(explain(81).bound == Bound::gpu);
    CHECK(explain(81).most == mebibytes(100));
    CHECK(explain(81).needed == mebibytes(101));
  }
}

TEST_CASE("Growth that host memory cannot hold is refused after a restart, too") {
  Recovered recovered;
  recovered.expected_sessions = 2;
  Bench b(std::move(recovered));
  Hello hello;
  hello.resuming = 1;
  for (const std::uint64_t session : {1, 2}) {
    b.come(session, 1, hello);
    b.attach(session);
  }
  MemoryUse use = Bench::use(30, 0);
  use.host_limit = mebibytes(50);
  for (const std::uint64_t session : {1, 2}) b.say(session, Usage{.request = 0, .use = use, .stuck = 0});
  b.say(2, Usage{.request = 1, .use = use, .stuck = 0});
  CHECK_FALSE(b.sent<Verdict>(2));
  b.pass(2s);
  REQUIRE(b.sent<Verdict>(2));
  CHECK(b.sent<Verdict>(2)->granted == 0);
  CHECK(b.sent<Verdict>(2)->host_most == mebibytes(50));
}

TEST_CASE("A refusal for lack of device memory does not name host memory") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 101, 0);
  REQUIRE(b.sent<Verdict>(1));
  CHECK(b.sent<Verdict>(1)->granted == 0);
  CHECK(b.sent<Verdict>(1)->host_most == Bytes{});
}

TEST_CASE("cuMemGetInfo reports only memory that the host memory of the process's step can hold") {
  Bench b;
  b.settle_in(1, 1, 20);
  MemoryUse use = Bench::use(20, 20);
  use.host_limit = mebibytes(50);
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  b.say(1, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(1)->free == mebibytes(30));
  CHECK(b.tenant(1).host.budget == mebibytes(50));
}

TEST_CASE(
    "A tenant that is short of host memory for its evicted memory is recalled at once, but not again and "
    "again") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.queue_up(2, 2, 75);
  b.pass(10s);  // the first turn is over
  b.release(1, 75, false);
  auto hand_over = [&b](std::uint64_t from, std::uint64_t to) {
    b.tell(from, 75, 0);
    b.ready(to, 75);
    CHECK(b.open(to));
  };
  hand_over(1, 2);

  b.pass(1s);
  b.want(1);
  CHECK(b.open(2));
  b.say(1, Want{.host_short = 1});
  CHECK_FALSE(b.open(2));
  b.release(2, 75, true);
  hand_over(2, 1);
  CHECK_FALSE(b.session(1).host_short);

  b.pass(10s);
  b.release(1, 75, false);
  hand_over(1, 2);
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 1h}}});
  b.say(1, Want{.host_short = 1});
  CHECK(b.open(2));
  b.pass(29s);
  CHECK(b.open(2));
  SECTION("that it was a while ago does not count") {
    b.pass(1min);
    CHECK(b.open(2));
  }
  SECTION("it says so still") {
    b.say(1, Want{.host_short = 1});
    b.pass(1s);
    CHECK_FALSE(b.open(2));
  }
}

TEST_CASE("A tenant that is short of host memory does not wait for a tenant that is just entering") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.queue_up(2, 2, 75);
  b.pass(10s);
  b.release(1, 75, false);
  b.tell(1, 40, 0);  // all memory of session 1 is evicted
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.tenant(2).phase == Phase::entering);
  b.want(1);
  CHECK(b.tenant(2).phase == Phase::entering);
  b.say(1, Want{.host_short = 1});
  CHECK(b.sent<Revoke>(2));
  CHECK(b.tenant(1).phase == Phase::entering);
  // Both tenants are short of host memory, and neither of them displaces the other.
  b.release(2, 75, true);
  b.say(2, Want{.host_short = 1});
  CHECK(b.tenant(1).phase == Phase::entering);
  b.ready(1, 40);
  CHECK(b.open(1));
}

TEST_CASE("Sessions are told of host memory that evictions may need before they need it") {
  Bench b({}, {.fixed = 10s}, 1s);
  b.settle_in(1, 1, 60);
  CHECK_FALSE(b.sent<Prepare>(1));
  b.come(2, 2);
  b.attach(2);
  b.pass(1s);
  b.grow(2, 20, 0);
  b.tell(2, 20, 20);
  CHECK_FALSE(b.sent<Prepare>(1));  // less than seven eighths of the capacity are in use

  b.pass(1s);
  b.grow(2, 40, 20);  // both tenants just fit, but tenant 2 is likely to grow further
  REQUIRE(b.sent<Prepare>(1));
  REQUIRE(b.sent<Prepare>(2));
  CHECK(b.sent<Prepare>(1)->host == mebibytes(128));  // 10 MiB, rounded up to a slab
  CHECK(b.sent<Prepare>(1)->sharers == 1);
  b.grow(2, 70, 40);
  CHECK_FALSE(b.sent<Prepare>(1));
  b.tell(2, 68, 40);
  CHECK_FALSE(b.sent<Prepare>(1));

  SECTION("when it has passed for a while, it is given back") {
    b.tell(2, 40, 40);
    CHECK_FALSE(b.sent<Prepare>(1));
    b.pass(4s);
    CHECK_FALSE(b.sent<Prepare>(1));
    b.pass(1s);
    REQUIRE(b.sent<Prepare>(1));
    CHECK(b.sent<Prepare>(1)->host == Bytes{});
    CHECK(b.sent<Prepare>(2)->host == Bytes{});
    b.pass(1h);
    CHECK_FALSE(b.sent<Prepare>(1));
  }
  SECTION("not when it comes back meanwhile") {
    b.tell(2, 40, 40);
    b.pass(4s);
    b.grow(2, 70, 40);
    b.tell(2, 40, 40);
    b.pass(4s);
    CHECK_FALSE(b.sent<Prepare>(1));
    b.pass(1s);
    CHECK(b.sent<Prepare>(1));
  }
}

TEST_CASE("For a tenant that grows steadily, others evict in advance, half as much as it has grown") {
  Bench b({}, {.fixed = 10s}, 1s);
  b.settle_in(1, 1, 90);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 20, 0);
  b.release(2, 0, false);
  b.want(2);
  b.pass(10s);
  b.release(1, 90, true);
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(80 - 10));  // 10 MiB more than tenant 2 needs, since the end
                                                           // of its turn interrupted its growth
  b.tell(1, 90, 70);
  b.ready(2, 20);
  REQUIRE(b.open(2));

  b.pass(1s);
  b.grow(2, 38, 20);
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(61));
  b.tell(1, 90, 61);
  b.tell(2, 38, 38);
  b.grow(2, 40, 38);  // tenant 2 has grown by 20 MiB in all
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(61 - 10));
  b.tell(1, 90, 51);
  b.tell(2, 40, 40);
  b.grow(2, 43, 40);
  CHECK_FALSE(b.sent<Evict>(1));
  CHECK(b.granted(2));

  SECTION("as far as it can grow at all") {
    b.tell(2, 43, 43);
    b.grow(2, 96, 43);
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(4));
    b.tell(1, 90, 4);
    b.tell(2, 96, 96);
    b.grow(2, 97, 96);
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(1));
  }
  SECTION("not for what it frees and takes again") {
    for (int i = 0; i < 10; ++i) {
      b.tell(2, 20, 20);
      b.grow(2, 43, 20);
      b.tell(2, 43, 43);
    }
    b.grow(2, 50, 43);  // tenant 2 has grown by 30 MiB in all
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(51 - 15));
  }
  SECTION("not after a pause") {
    b.tell(2, 43, 43);
    b.pass(1s);
    b.grow(2, 51, 43);
    CHECK(b.sent<Evict>(1)->allowed == mebibytes(51 - 4));
  }
}

TEST_CASE("Growth that the end of a turn has stopped is expected to continue in the next turn") {
  Bench b({}, {.fixed = 10s}, 1s);
  b.settle_in(1, 1, 60);
  b.come(2, 2);
  b.attach(2);
  b.pass(1s);
  b.grow(2, 30, 0);
  b.tell(2, 30, 30);
  b.grow(2, 60, 30);
  REQUIRE(b.sent<Revoke>(2));
  b.release(2, 30, true);
  b.tell(2, 60, 30);
  const bool gives_back = GENERATE(false, true);
  if (gives_back) b.tell(2, 58, 30);
  b.pass(9s);
  REQUIRE(b.sent<Revoke>(1));
  b.release(1, 60, true);
  // Tenant 2 gets room for its 60 MiB and for further growth by half of these 60 MiB. If tenant 2 has freed
  // memory, it gets room only for its 58 MiB.
  CHECK(b.sent<Evict>(1)->allowed.count >> 20 == (gives_back ? 42u : 10u));
}

TEST_CASE("Just before a GPU is full a little host memory is prepared, and none for one tenant alone") {
  Tuning tuning;
  const std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core(tuning, *policy, {}, 1000s);
  core.handle(GpuFound{.gpu = kGpu, .total = gibibytes(100), .capacity = gibibytes(80), .learned = false},
              1000s);
  Nanoseconds now = 1000s;
  using Told = std::map<std::uint64_t, Bytes>;
  // Reports the size of a session, lets seven seconds pass without growth, and returns the host memory that
  // each session was last ordered to prepare.
  auto grow = [&](std::uint64_t session, Bytes size) {
    const MemoryUse use{.swappable = size, .resident = {}, .pinned = {}, .context = {}, .host = {}};
    core.handle(From<Usage>{.session = SessionId{session}, .body = {.request = 1, .use = use, .stuck = 0}},
                now);
    for (int second = 0; second < 7; ++second) core.handle(TimerFired{}, now += 1s);
    Told told;
    for (const Snapshot::Session& its : core.snapshot().sessions) told[its.id.value] = its.prepared_host;
    return told;
  };
  auto come = [&](std::uint64_t session, std::uint64_t tenant) {
    core.handle(
        SessionCame{
            .session = SessionId{session}, .tenant = TenantId{tenant}, .step = {}, .cap = {}, .hello = {}},
        now);
    core.handle(From<Attach>{.session = SessionId{session}, .body = {.gpu = kGpu, .total = {}}}, now);
  };
  come(1, 1);
  CHECK(grow(1, gibibytes(79)) == Told{{1, {}}});
  CHECK(grow(1, gibibytes(40)) == Told{{1, {}}});
  come(2, 2);
  CHECK(grow(2, gibibytes(29)) == Told{{1, {}}, {2, {}}});
  CHECK(grow(2, gibibytes(31)) == Told{{1, mebibytes(128)}, {2, mebibytes(128)}});
  CHECK(grow(2, gibibytes(32)) == Told{{1, mebibytes(128)}, {2, mebibytes(128)}});

  // Each of the two tenants may have to evict as much memory as the GPU lacks for both, and slightly more,
  // since a tenant may grow.
  const Bytes each = gibibytes(10) + mebibytes(128);
  CHECK(grow(2, gibibytes(50)) == Told{{1, each}, {2, each}});
  CHECK(grow(2, gibibytes(50) + mebibytes(2)) ==
        Told{{1, each}, {2, each}});  // `each` contains enough for this growth
  come(3, 3);
  CHECK(grow(3, gibibytes(60)) ==
        Told{{1, gibibytes(40)}, {2, gibibytes(50) + mebibytes(128)}, {3, gibibytes(60)}});
}

TEST_CASE(
    "A tenant whose times begin at zero before it has reconnected loses the lease that it held under the "
    "earlier arbiter") {
  const Tuning tuning;
  const std::unique_ptr<Policy> policy = make_policy("round-robin");
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 7, .step = 0}};
  Recovered recovered;
  recovered.leases.grant(key, Epoch{4}, 900s);
  recovered.last_record = 950s;
  Core core(tuning, *policy, recovered, 1000s);
  const Actions actions = core.forget(TenantId{1});
  REQUIRE(actions.size() == 1);
  const auto& released = std::get<RecordLease>(actions.front());
  CHECK_FALSE(released.grant);
  CHECK(released.key == key);
  CHECK(released.at == 950s);
  CHECK_FALSE(core.leases().holds(TenantId{1}));
  CHECK(core.leases().of_tenant(TenantId{1}, 1001s) == 0s);
  for (const Action& action : core.handle(TimerFired{}, 1100s))
    CHECK_FALSE(std::holds_alternative<RecordLease>(action));
  CHECK(core.snapshot().tenants.empty());
}

TEST_CASE("The sessions of a tenant together prepare host memory for the tenant's eviction") {
  Bench b;
  b.settle_in(1, 1, 20);
  b.come(2, 1);
  REQUIRE(b.sent<Prepare>(1));  // the tenant has two sessions, though neither needs host memory
  CHECK(b.sent<Prepare>(1)->host == Bytes{});
  CHECK(b.sent<Prepare>(1)->sharers == 2);
  CHECK(b.session(2).sharers == 1);
  b.attach(2);
  CHECK(b.sent<Prepare>(2)->sharers == 2);
  b.grow(2, 60, 0);
  b.pass(1s);
  b.settle_in(3, 2, 10);
  CHECK_FALSE(b.sent<Prepare>(1));
  b.pass(1s);
  b.grow(3, 90, 10);
  CHECK(b.sent<Prepare>(1)->host == mebibytes(64));
  CHECK(b.sent<Prepare>(2)->host == mebibytes(64));  // 50 MiB, in addition to session 1's 20 MiB; rounded up
  CHECK(b.sent<Prepare>(3)->host == mebibytes(128));

  b.come(4, 1);
  b.attach(4);
  CHECK(b.sent<Prepare>(4)->sharers == 4);
  CHECK(b.sent<Prepare>(4)->host == Bytes{});
  b.come(5, 1);
  CHECK_FALSE(b.sent<Prepare>(1));
}

// In this test, session 1 has been ordered to evict all of its memory, so session 2 evicts next.
TEST_CASE("Host memory is prepared for a session that evicts after other sessions of its tenant") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.come(2, 1);
  b.attach(2);
  b.grow(2, 20, 0);
  b.tell(2, 20, 20);
  b.come(3, 2);
  b.attach(3);
  b.grow(3, 80, 0);
  CHECK(b.session(1).prepared_host > Bytes{});
  CHECK(b.session(2).prepared_host == Bytes{});
  b.release(3, 0, true);
  b.pass(10s);
  b.release(1, 40, true);
  b.release(2, 20, true);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == Bytes{});
  CHECK_FALSE(b.sent<Evict>(2));
  b.tell(1, 40, 20);
  CHECK(b.session(2).prepared_host > Bytes{});
}

TEST_CASE("A turn: revoke, release, evict, restore, ready, open") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.want(2);
  CHECK(b.open(1));
  CHECK(b.session(1).contended);
  b.pass(9s);
  CHECK(b.open(1));
  b.pass(1s);
  CHECK_FALSE(b.open(1));
  CHECK(b.sent<Revoke>(1));
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(25));
  CHECK_FALSE(b.sent<Evict>(1));  // session 1 has not drained

  b.release(1, 75, true);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(25));
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  b.tell(1, 75, 50);
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(50));
  b.tell(1, 75, 25);
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(75));
  CHECK_FALSE(b.open(2));
  b.ready(2, 75);
  CHECK(b.open(2));
  CHECK(b.core->leases().holds(TenantId{2}));

  b.pass(10s);
  CHECK_FALSE(b.open(2));
  CHECK(b.sent<Revoke>(2));
}

TEST_CASE("Memory that can never be resident is refused") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  b.grow(1, 101, 0);
  CHECK(b.sent<Verdict>(1)->granted == 0);
  b.grow(1, 100, 0);
  CHECK(b.granted(1));
  SECTION("beside what others have pinned") {
    b.tell(1, 50, 50);
    b.come(2, 2);
    b.attach(2);
    b.grow(2, 0, 0, 20);
    CHECK(b.granted(2));
    b.grow(1, 81, 50);
    CHECK(b.sent<Verdict>(1)->granted == 0);
  }
  SECTION("pinning that would lock another tenant out") {
    b.come(2, 2);
    b.attach(2);
    b.grow(2, 0, 0, 1);
    CHECK(b.sent<Verdict>(2)->granted == 0);
  }
  SECTION("beyond the tenant's own cap") {
    b.come(3, 3, {}, mebibytes(10));
    b.attach(3);
    CHECK(b.sent<Attached>(3)->capacity == mebibytes(10));
    b.grow(3, 11, 0);
    CHECK(b.sent<Verdict>(3)->granted == 0);
  }
}

TEST_CASE("Memory that is to be pinned in place is pinned at once, within the same footprint") {
  Bench b;
  b.settle_in(1, 1, 90);
  const auto settle = [&](unsigned size) {
    MemoryUse its = b.use(90, 90, size);
    its.settling = mebibytes(size);
    b.say(1, Usage{.request = 7, .use = its, .stuck = 0});
  };
  SECTION("alone") {
    settle(80);
    CHECK(b.granted(1));
    CHECK(b.session(1).use.footprint() == mebibytes(90));
    CHECK(b.session(1).use.pinned == mebibytes(80));
    CHECK(b.session(1).use.resident == mebibytes(10));
    CHECK(b.gpu().promised == mebibytes(90));
    // A report that was sent before the Verdict arrived changes neither value.
    MemoryUse old = b.use(90, 90, 80);
    old.settling = mebibytes(80);
    b.say(1, Usage{.request = 0, .use = old, .stuck = 0});
    CHECK(b.session(1).use.pinned == mebibytes(80));
    CHECK(b.session(1).use.swappable == mebibytes(10));
  }
  SECTION("not where another tenant could never run again") {
    b.settle_in(2, 2, 50);
    settle(51);
    CHECK(b.sent<Verdict>(1)->granted == 0);
    CHECK(b.session(1).use.swappable == mebibytes(90));
    CHECK(b.session(1).use.pinned == Bytes{});
  }
}

TEST_CASE("Growth waits for the eviction of tenants without a lease") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 50, 0);
  b.release(2, 0, false);
  b.want(2);
  b.pass(10s);
  b.release(1, 75, false);
  b.tell(1, 75, 50);
  b.ready(2, 50);
  REQUIRE(b.open(2));
  b.grow(2, 70, 50);
  CHECK_FALSE(b.sent<Verdict>(2));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(30));
  b.tell(1, 75, 40);
  CHECK_FALSE(b.sent<Verdict>(2));
  b.tell(1, 75, 30);
  CHECK(b.granted(2));
  CHECK(b.sent<Verdict>(2)->allowed == mebibytes(70));
}

TEST_CASE("An idle tenant leaves early only if a waiting tenant then fits") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  auto idle = [&](Nanoseconds time) { b.say(1, Idle{.epoch = b.epoch(1), .idle = time}); };
  idle(1s);
  CHECK(b.open(1));  // nobody waits
  b.want(2);
  CHECK_FALSE(b.open(1));
  b.release(1, 75, false);
  b.tell(1, 75, 25);
  b.now += 3s;  // a slow handoff
  b.ready(2, 75);
  REQUIRE(b.open(2));
  b.want(1);
  b.say(2, Idle{.epoch = b.epoch(2), .idle = 500ms});
  CHECK(b.open(2));  // a handoff costs more than this idle time
  b.say(2, Idle{.epoch = Epoch{1}, .idle = 5s});
  CHECK(b.open(2));  // this report is about an earlier turn
  b.say(2, Idle{.epoch = b.epoch(2), .idle = 1s});
  CHECK_FALSE(b.open(2));
}

TEST_CASE("A tenant that fits beside the chosen tenants joins them") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(2, 2, 20);
  b.come(3, 3);
  b.attach(3);
  b.grow(3, 60, 0);
  b.release(3, 0, false);
  b.want(3);
  b.pass(10s);
  CHECK_FALSE(b.open(1));
  CHECK(b.open(2));
  CHECK(b.tenant(3).phase == Phase::entering);
}

TEST_CASE("The sessions of a tenant enter and leave together") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.come(3, 2);
  b.attach(3);
  b.grow(2, 30, 0);
  CHECK_FALSE(b.open(2));
  CHECK_FALSE(b.open(3));
  b.release(2, 0, true);
  b.grow(3, 30, 0);
  CHECK(b.tenant(2).phase == Phase::leaving);
  b.release(3, 0, false);
  b.pass(10s);
  b.release(1, 75, false);
  b.tell(1, 75, 40);
  b.ready(2, 30);
  CHECK_FALSE(b.open(2));
  b.ready(3, 30);
  CHECK(b.open(2));
  CHECK(b.open(3));
}

// A tenant of two sessions, 2 and 3, whose turn has just ended.
Bench two_after_their_turn(unsigned size = 30) {
  Bench b;
  b.settle_in(2, 2, size);
  b.settle_in(3, 2, size);
  b.queue_up(1, 1, 75);
  b.pass(10s);
  return b;
}

TEST_CASE("A drained session may submit once while other sessions of its tenant have not drained") {
  Bench b = two_after_their_turn();
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  b.release(2, 30, true);
  b.pass(99ms);
  CHECK_FALSE(b.sent<Step>(2));
  b.pass(1ms);
  REQUIRE(b.sent<Step>(2));
  CHECK(b.sent<Step>(2)->epoch == b.epoch(2));
  CHECK(b.sent<Step>(2)->allowed == mebibytes(30));
  CHECK_FALSE(b.sent<Step>(3));
  b.pass(1s);
  CHECK_FALSE(b.sent<Step>(2));  // no Step is sent before the session has answered

  SECTION("the lease ends when all have drained after their last step") {
    b.release(3, 30, true);
    CHECK(b.tenant(2).phase == Phase::leaving);
    CHECK(b.core->leases().holds(TenantId{2}));
    b.release(2, 30, true);
    CHECK(b.tenant(2).phase == Phase::out);
    CHECK_FALSE(b.core->leases().holds(TenantId{2}));
    CHECK(b.tenant(2).last_drain == 1100ms);
  }
  SECTION("an answer to what was asked before is none") {
    const std::uint64_t order = b.session(2).order;
    b.say(2,
          Released{
              .epoch = b.epoch(2), .order = order - 1, .wants = 1, .overuse = {}, .use = Bench::use(30, 30)});
    b.release(3, 30, true);
    CHECK(b.tenant(2).phase == Phase::leaving);
  }
  SECTION("the roles can change") {
    b.release(3, 30, true);
    b.pass(10s);
    CHECK(b.sent<Step>(3));
    CHECK_FALSE(b.sent<Step>(2));
    b.release(2, 30, false);
    CHECK(b.tenant(2).phase == Phase::leaving);
    b.release(3, 30, false);
    CHECK(b.tenant(2).phase == Phase::out);
  }
  SECTION("it dies") {
    b.handle(SessionGone{.session = SessionId{2}});
    CHECK(b.tenant(2).phase == Phase::leaving);
    b.release(3, 30, true);
    CHECK(b.tenant(2).phase == Phase::out);
  }
  SECTION("the one that was waited for dies") {
    b.handle(SessionGone{.session = SessionId{3}});
    CHECK(b.tenant(2).phase == Phase::leaving);
    b.release(2, 30, true);
    CHECK(b.tenant(2).phase == Phase::out);
  }
}

TEST_CASE("A session that drains without a single submission did not wait for its own processes") {
  Bench b = two_after_their_turn();
  b.pass(50ms);
  b.release(2, 30, true);
  b.release(3, 30, true);
  REQUIRE(b.tenant(2).phase == Phase::out);
  CHECK(b.tenant(2).last_drain == 0ms);
}

TEST_CASE("Steps are sent at growing intervals, and only to sessions that have work to submit") {
  Bench b = two_after_their_turn();
  b.release(2, 30, false);
  b.pass(1s);
  CHECK_FALSE(b.sent<Step>(2));
  b.want(2);
  REQUIRE(b.sent<Step>(2));
  auto steps_in = [&](Nanoseconds time) {
    int steps = 0;
    for (const Nanoseconds end = b.now + time; b.now < end; b.pass(1ms)) {
      if (!b.sent<Step>(2)) continue;
      ++steps;
      b.release(2, 30, true);
    }
    return steps;
  };
  b.release(2, 30, true);
  const int first = steps_in(10s);
  CHECK(first > 1);
  steps_in(100s);
  CHECK(steps_in(10s) < first);
}

TEST_CASE("After a long single submission, no other session may submit for almost twice as long") {
  Bench b = two_after_their_turn();
  b.release(2, 30, true);
  b.pass(100ms);
  REQUIRE(b.sent<Step>(2));
  b.now += 5s;
  b.release(3, 30, true);
  b.pass(9s);
  CHECK_FALSE(b.sent<Step>(3));
  b.release(2, 30, true);
  CHECK_FALSE(b.core->leases().holds(TenantId{2}));
}

TEST_CASE("A session that may submit once gets the memory that it lacks") {
  Bench b = two_after_their_turn();
  b.settle_in(4, 4, 0);
  b.release(2, 30, true);
  REQUIRE(b.tenant(1).phase == Phase::entering);
  CHECK(b.session(1).resident_limit == mebibytes(40));  // all free memory
  b.grow(2, 50, 30);
  CHECK(b.granted(2));
  CHECK(b.sent<Verdict>(2)->allowed == mebibytes(30));
  // Tenant 1, which is entering, leaves the running set, since it cannot enter before tenant 2 has left.
  b.pass(100ms);
  CHECK(b.tenant(1).phase == Phase::leaving);
  CHECK_FALSE(b.sent<Step>(2));
  b.release(1, true, Bench::use(75, 40));
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(20));
  CHECK(b.tenant(1).phase == Phase::out);
  b.tell(1, 75, 20);
  REQUIRE(b.sent<Step>(2));
  CHECK(b.sent<Step>(2)->allowed == mebibytes(50));
  b.release(2, 50, true);
  b.release(3, 30, true);
  CHECK(b.tenant(2).phase == Phase::out);
  CHECK(b.tenant(1).phase == Phase::entering);
}

TEST_CASE("A tenant that cannot leave for lack of memory gets memory of running tenants after their turn") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.settle_in(2, 2, 30);
  b.settle_in(3, 2, 30);
  b.grow(2, 50, 30);  // the growth does not fit: the tenant has to leave
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  CHECK(b.open(1));
  b.release(2, true, Bench::use(50, 30));
  b.pass(9s);
  CHECK(b.open(1));
  CHECK_FALSE(b.sent<Step>(2));
  b.pass(1s);
  CHECK_FALSE(b.open(1));
  b.release(1, 40, true);
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 40, 20);
  CHECK(b.sent<Step>(2));
}

// Tenant 1, of 60 MiB, is leaving, and tenant 2, of 60 MiB, is entering.
Bench one_leaves() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass(10s);
  return b;
}

TEST_CASE(
    "A tenant that allocates while its turn ends gets memory that was promised to the entering tenant") {
  Bench b = one_leaves();
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(40));
  b.grow(1, 80, 60);
  b.pass(99ms);
  CHECK_FALSE(b.sent<Verdict>(1));
  CHECK(b.tenant(2).phase == Phase::entering);  // most drains end soon
  b.pass(1ms);
  CHECK(b.tenant(2).phase == Phase::leaving);
  b.release(2, true, Bench::use(60, 40));
  REQUIRE(b.sent<Evict>(2));
  CHECK(b.sent<Evict>(2)->allowed == mebibytes(20));
  CHECK_FALSE(b.sent<Verdict>(1));
  b.tell(2, 60, 20);
  CHECK(b.granted(1));
  CHECK(b.sent<Verdict>(1)->allowed == mebibytes(80));
  b.release(1, 80, true);
  CHECK(b.tenant(1).phase == Phase::out);
  CHECK(b.tenant(2).phase == Phase::entering);
}

TEST_CASE("A tenant that lacks memory to leave gets it from the running tenant after that tenant's turn") {
  Bench b;
  b.settle_in(1, 1, 40);
  b.settle_in(2, 2, 50);
  b.grow(2, 80, 50);
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  b.pass(9s);
  CHECK(b.open(1));
  CHECK_FALSE(b.sent<Verdict>(2));
  b.pass(1s);
  CHECK_FALSE(b.open(1));
  b.release(1, 40, true);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(20));
  b.tell(1, 40, 20);
  CHECK(b.granted(2));
  CHECK(b.sent<Verdict>(2)->allowed == mebibytes(80));
}

TEST_CASE("If all tenants with memory need more memory to leave, the last one is refused after a while") {
  Bench b;
  b.settle_in(1, 1, 45);
  b.settle_in(2, 2, 45);
  b.queue_up(3, 3, 75);
  b.pass(10s);
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  REQUIRE(b.tenant(2).phase == Phase::leaving);
  const bool both_need = GENERATE(false, true);
  b.grow(1, 60, 45);
  if (both_need) b.grow(2, 60, 45);
  b.pass(100ms);
  b.release(3, true, Bench::use(75, 10));  // tenant 3, which was entering, leaves the running set
  if (both_need) {
    REQUIRE(b.until_sent<Verdict>(2));
    CHECK_FALSE(b.sent<Verdict>(1));
    CHECK(b.refused(2));
    b.tell(2, 45, 45);
    CHECK_FALSE(b.sent<Verdict>(1));
  } else {  // the core waits for tenant 2
    b.pass_by_timers(1h);
    CHECK_FALSE(b.sent<Verdict>(1));
  }
  b.release(2, 45, true);
  REQUIRE(b.sent<Evict>(2));
  CHECK(b.sent<Evict>(2)->allowed == mebibytes(40));
  b.tell(3, 75, 0);
  b.tell(2, 45, 40);
  CHECK(b.granted(1));
  CHECK(b.sent<Verdict>(1)->allowed == mebibytes(60));
}

TEST_CASE("Memory that a session frees while its turn ends is available to others") {
  Bench b = one_leaves();
  b.tell(1, 50, 50);
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(50));
}

TEST_CASE("Memory that a session pins in place is pinned before the session has drained") {
  Bench b = one_leaves();
  MemoryUse its = Bench::use(60, 60, 10);
  its.settling = mebibytes(10);
  b.say(1, Usage{.request = 7, .use = its, .stuck = 0});
  CHECK(b.granted(1));
  CHECK(b.tenant(1).phase == Phase::leaving);
}

TEST_CASE("Memory that a drained session pins in place is pinned before its turn has ended") {
  Bench b = two_after_their_turn();
  b.release(2, 30, false);
  MemoryUse its = Bench::use(30, 30, 10);
  its.settling = mebibytes(10);
  b.say(2, Usage{.request = 7, .use = its, .stuck = 0});
  CHECK(b.granted(2));
  CHECK(b.tenant(2).phase == Phase::leaving);
}

TEST_CASE("Tenants on two GPUs have one turn on both") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 1);
  b.attach(2, kOther);
  b.come(3, 2);
  b.attach(3);
  b.come(4, 2);
  b.attach(4, kOther);
  b.grow(3, 75, 0);
  CHECK_FALSE(b.open(3));
  CHECK_FALSE(b.open(4));
  CHECK(b.open(1));
  CHECK(b.open(2));
  b.release(3, 0, true);
  b.release(4, 0, false);
  b.pass(10s);
  CHECK_FALSE(b.open(1));
  CHECK_FALSE(b.open(2));
}

TEST_CASE("A session that dies gives everything back at once") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.want(2);
  SECTION("in its turn") { b.handle(SessionGone{.session = SessionId{1}}); }
  SECTION("while it leaves") {
    b.pass(10s);
    b.handle(SessionGone{.session = SessionId{1}});
  }
  SECTION("while it evicts") {
    b.pass(10s);
    b.release(1, 75, false);
    b.handle(SessionGone{.session = SessionId{1}});
  }
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(75));
  b.ready(2, 75);
  CHECK(b.open(2));
}

TEST_CASE("A tenant that dies while it enters makes room for the next tenant") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.want(2);
  b.pass(10s);
  b.release(1, 75, true);
  REQUIRE(b.tenant(2).phase == Phase::entering);
  b.handle(SessionGone{.session = SessionId{2}});
  CHECK(b.tenant(1).phase == Phase::entering);
  CHECK(b.sent<Restore>(1)->allowed == mebibytes(75));
}

TEST_CASE("Memory that cannot be evicted counts as staying on the GPU, and its eviction is tried again") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.want(2);
  b.pass(10s);
  b.release(1, 75, true);
  b.tell(1, 75, 60, true);
  CHECK(b.tenant(2).phase == Phase::leaving);  // tenant 2 had the order to restore 25 MiB
  CHECK(b.tenant(1).phase == Phase::entering);
  b.ready(1, 75);
  b.release(2, 0, true);
  b.say(1, Ready{.epoch = b.epoch(1), .use = Bench::use(75, 75)});
  CHECK(b.open(1));
  b.pass(10s);
  CHECK_FALSE(b.open(1));
}

TEST_CASE("Crossing messages change nothing") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  Epoch first = b.epoch(2);
  b.grow(2, 75, 0);
  b.say(2, Ready{.epoch = first, .use = {}});   // sent before the Revoke arrived
  b.say(2, Idle{.epoch = first, .idle = 10s});  // also sent before the Revoke arrived
  CHECK(b.tenant(2).phase == Phase::leaving);
  const std::uint64_t order = b.session(2).order;
  b.say(2, Released{.epoch = Epoch{999}, .order = order, .wants = 1, .overuse = {}, .use = {}});
  CHECK(b.tenant(2).phase == Phase::leaving);
  b.say(2, Released{.epoch = b.epoch(2), .order = order - 1, .wants = 1, .overuse = {}, .use = {}});
  CHECK(b.tenant(2).phase == Phase::leaving);
  b.release(2, 0, true);
  CHECK(b.tenant(2).phase == Phase::out);
  CHECK(b.tenant(2).wants);
  b.want(1);  // the gate of session 1 is open
  CHECK_FALSE(b.tenant(1).wants);
  b.say(77, Want{});  // there is no session 77
  CHECK(b.open(1));
}

TEST_CASE("A pin request of a session that may submit once is granted or refused, and never waits for ever") {
  const auto settle = [](Bench& b, unsigned size) {
    MemoryUse its = Bench::use(size, size, 10);
    its.settling = mebibytes(10);
    b.say(2, Usage{.request = 7, .use = its, .stuck = 0});
  };
  SECTION("there is room for what it was told before, and for what it pins") {
    Bench b = two_after_their_turn();
    b.release(2, 30, true);
    b.pass(100ms);
    REQUIRE(b.sent<Step>(2));
    settle(b, 30);
    CHECK_FALSE(b.sent<Verdict>(2));  // the rest of the GPU has been promised to the entering tenant
    b.handle(SessionGone{.session = SessionId{1}});
    CHECK(b.granted(2));
    CHECK(b.session(2).use.pinned == mebibytes(10));
  }
  SECTION("a tenant without a lease makes room") {
    Bench b;
    b.settle_in(4, 4, 20);
    b.settle_in(2, 2, 30);
    b.settle_in(3, 2, 30);
    b.queue_up(1, 1, 90);
    b.pass(10s);
    b.tell(1, 30, 0);
    b.release(4, 20, false);
    b.tell(4, 20, 10);
    b.release(2, 30, true);
    b.pass(100ms);
    REQUIRE(b.sent<Step>(2));
    settle(b, 30);
    CHECK_FALSE(b.sent<Verdict>(2));
    REQUIRE(b.sent<Evict>(4));
    CHECK(b.sent<Evict>(4)->allowed == Bytes{});
    b.tell(4, 20, 0);
    CHECK(b.granted(2));
  }
  SECTION("there is none") {
    Bench b = two_after_their_turn(50);
    b.release(2, 50, true);
    b.pass(100ms);
    REQUIRE(b.sent<Step>(2));
    settle(b, 50);
    CHECK_FALSE(b.sent<Verdict>(2));
    // Until session 2 has an answer, other sessions do not get the memory in its pin request.
    b.grow(1, 90, 0);
    CHECK(b.granted(1));
    b.grow(1, 91, 0);
    REQUIRE(b.sent<Verdict>(1));
    CHECK(b.sent<Verdict>(1)->granted == 0);
    CHECK(b.until_sent<Verdict>(2) == 10s);
    REQUIRE(b.sent<Verdict>(2));
    CHECK(b.sent<Verdict>(2)->granted == 0);
    CHECK(b.session(2).use.swappable == mebibytes(50));
  }
}

TEST_CASE("A session that was ready and grows has a new timeout for its restore") {
  Bench b;
  b.settle_in(2, 2, 30);
  b.settle_in(3, 2, 30);
  b.settle_in(1, 1, 40);
  b.grow(1, 75, 40);
  b.release(1, 40, true);
  b.pass(10s);
  b.release(2, 30, true);
  b.release(3, 30, true);
  b.tell(2, 30, 0);
  b.tell(3, 30, 25);
  b.ready(1, 75);
  REQUIRE(b.open(1));
  b.pass(10s);
  b.release(1, 75, true);
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 75, 45);
  REQUIRE(b.sent<Restore>(2));
  b.ready(2, 30);
  b.pass(600ms);
  CHECK_FALSE(b.sent<Evict>(1));
  b.grow(2, 35, 30);
  auto is_note = [](const Action& action) { return std::holds_alternative<Note>(action); };
  CHECK(std::none_of(b.last.begin(), b.last.end(), is_note));
}

TEST_CASE("A session that was ready, and has filled its memory once more, is asked for another Ready") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(3, 1, 1);
  b.queue_up(2, 2, 75);
  b.pass(10s);
  b.release(1, 60, true);
  b.release(3, 1, true);
  b.tell(1, 60, 24);
  b.ready(2, 75);
  b.pass(10s);
  b.release(2, 75, false);
  b.tell(2, 75, 39);
  b.ready(1, 60);  // session 3, of the same tenant, is not ready
  REQUIRE_FALSE(b.open(1));
  b.tell(1, 40, 40);
  b.grow(1, 50, 40);
  CHECK(b.granted(1));
  CHECK_FALSE(b.session(1).ready);
  b.tell(1, 50, 50);
  REQUIRE(b.sent<Restore>(1));
  CHECK(b.sent<Restore>(1)->allowed == mebibytes(60));
  b.ready(1, 50);
  b.ready(3, 1);
  CHECK(b.open(1));
}

TEST_CASE("A tenant that finds less memory on the GPU than computed gets that of tenants without a lease") {
  Bench b;
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.want(2);
  b.pass(10s);
  b.release(1, 75, false);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(25));
  b.tell(1, 75, 25);
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(75));
  // The driver has less free memory than the core computes.
  b.tell(2, 75, 60);
  b.pass_by_timers(499ms);
  CHECK_FALSE(b.sent<Evict>(1));
  b.pass_by_timers(1ms);
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(10));
  b.tell(1, 75, 10);
  b.ready(2, 75);
  CHECK(b.open(2));
}

TEST_CASE("Growth without a request does not count") {
  Bench b;
  b.settle_in(1, 1, 10);
  b.say(1, Usage{.request = 0, .use = Bench::use(90, 10, 50), .stuck = 0});
  CHECK(b.session(1).use.footprint() == mebibytes(10));
}

TEST_CASE("cuMemGetInfo's view") {
  Bench b;
  b.settle_in(1, 1, 30);
  b.come(2, 2, {}, mebibytes(50));
  b.attach(2);
  b.grow(2, 10, 0, 5);
  b.say(1, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(1)->total == mebibytes(100));
  CHECK(b.sent<MemoryView>(1)->free == mebibytes(65));
  b.say(2, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(2)->total == mebibytes(50));
  CHECK(b.sent<MemoryView>(2)->free == mebibytes(35));
}

TEST_CASE("The total of cuMemGetInfo is whole pages, whatever the capacity and the job's limit are") {
  Bench b;
  const GpuUuid gpu{{7}};
  const Bytes odd = gibibytes(1) - Bytes{3};
  b.handle(GpuFound{.gpu = gpu, .total = gibibytes(2), .capacity = odd, .learned = false});
  const auto [limit, total] = GENERATE(
      std::pair(Bytes{}, gibibytes(1) - mebibytes(2)), std::pair(gibibytes(1), gibibytes(1) - mebibytes(2)),
      std::pair(mebibytes(51), mebibytes(50)), std::pair(mebibytes(50), mebibytes(50)));
  b.come(1, 1, {}, limit);
  b.say(1, Attach{.gpu = gpu, .total = gibibytes(2), .name = {}});
  CHECK(b.sent<Attached>(1)->capacity == total);
  b.say(1, MemoryQuery{.request = 9});
  CHECK(b.sent<MemoryView>(1)->total == total);
  CHECK(b.sent<MemoryView>(1)->free == total);
}

TEST_CASE("Contexts that need more memory than the GPU has beyond its capacity lower the usable memory") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  MemoryUse use;
  use.context = mebibytes(30);
  b.say(1, Usage{.request = 0, .use = use, .stuck = 0});
  CHECK(b.gpu().usable == mebibytes(90));
}

// ---- restarts ----

Recovered with_lease_since(std::uint64_t tenant, Nanoseconds since, unsigned expected) {
  Recovered recovered;
  LeaseKey key{.tenant = TenantId{tenant},
               .gpu = kGpu,
               .step = {.job = static_cast<std::uint32_t>(tenant), .step = 0}};
  recovered.leases.grant(key, Epoch{7}, since);
  recovered.last_epoch = Epoch{7};
  recovered.last_record = since;
  recovered.expected_sessions = expected;
  return recovered;
}

TEST_CASE("A session that waits when it reconnects has waited since the reconnection") {
  Bench b;
  Hello hello;
  hello.resuming = hello.wants = 1;
  b.settle_in(1, 1, 60);
  b.come(2, 2, hello);
  b.attach(2);
  CHECK(b.tenant(2).waiting_since == b.now);
}

TEST_CASE("A session that reconnects is told again how much host memory it needs") {
  Bench b(with_lease_since(1, 900s, 1));
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = Epoch{7};
  b.come(1, 1, hello);
  b.attach(1);
  b.tell(1, 60, 60);
  REQUIRE(b.sent<Prepare>(1));
  CHECK(b.sent<Prepare>(1)->host == Bytes{});
}

TEST_CASE("A lease that the ledger has continues without a pause") {
  Bench b(with_lease_since(1, 900s, 1));
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = Epoch{7};
  b.come(1, 1, hello);
  CHECK(b.open(1));
  b.attach(1);
  CHECK(b.core->in_grace());
  b.tell(1, 75, 75);
  CHECK_FALSE(b.core->in_grace());
  CHECK(b.open(1));
  CHECK(b.core->leases().of_tenant(TenantId{1}, b.now) == 100s);
}

TEST_CASE(
    "A lease counts until the last record while no session has come back for it, and afterwards until now") {
  Recovered recovered = with_lease_since(1, 900s, 1);
  recovered.last_record = 950s;
  Bench b(recovered);
  const auto lease = [&] { return b.core->leases().of_step({.job = 1, .step = 0}, b.now); };
  REQUIRE(b.now == 1000s);
  CHECK(lease() == 50s);
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = Epoch{7};
  SECTION("and nobody does") {
    b.pass(1min);
    CHECK_FALSE(b.core->in_grace());
    CHECK(lease() == 50s);
  }
  SECTION("it does") {
    b.come(1, 1, hello);
    CHECK(lease() == 50s);
    b.attach(1);
    b.now += 1s;
    CHECK(lease() == 101s);
  }
  SECTION("it does, and dies before others of the tenant could have come back") {
    b.come(1, 1, hello);
    b.attach(1);
    b.now += 1s;
    b.handle(SessionGone{.session = SessionId{1}});
    b.now += 100ms;
    CHECK(lease() == 101s);
    b.pass(1min);
    CHECK(lease() == 101s);
    CHECK_FALSE(b.core->leases().holds(TenantId{1}));
  }
}

TEST_CASE("A lease that the ledger does not have is not believed") {
  Bench b(with_lease_since(1, 900s, 2));
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = Epoch{7};
  b.come(2, 2, hello);
  CHECK_FALSE(b.open(2));
  b.attach(2);
  CHECK(b.sent<Revoke>(2));
  hello.epoch = Epoch{6};
  b.come(1, 1, hello);
  CHECK_FALSE(b.open(1));
}

TEST_CASE("A lease whose session was draining when the arbiter died ends with Released") {
  Bench b(with_lease_since(1, 900s, 1));
  Hello hello;
  hello.resuming = 1;
  hello.epoch = Epoch{7};
  b.come(1, 1, hello);
  b.attach(1);
  CHECK(b.sent<Revoke>(1));
  b.tell(1, 75, 75);
  b.now += 1s;
  b.release(1, 75, false);
  CHECK(b.core->leases().of_tenant(TenantId{1}, 5000s) == 101s);
}

TEST_CASE("Sessions whose turn was ending when the arbiter died may also submit once") {
  Bench b(with_lease_since(1, 900s, 2));
  Hello hello;
  hello.resuming = 1;
  hello.wants = 1;
  hello.epoch = Epoch{7};
  b.come(1, 1, hello);
  b.attach(1);
  CHECK(b.sent<Revoke>(1));
  b.tell(1, 30, 30);
  b.release(1, 30, true);
  hello.held = 1;
  b.come(2, 1, hello);
  CHECK_FALSE(b.open(2));
  b.attach(2);
  CHECK(b.sent<Revoke>(2));
  b.tell(2, 30, 30);
  b.pass(2s);
  REQUIRE(b.sent<Step>(1));
  b.release(2, 30, true);
  CHECK(b.tenant(1).phase == Phase::leaving);
  b.release(1, 30, true);
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
}

TEST_CASE("No memory is promised until all sessions have reconnected or the recovery has ended") {
  Bench b(with_lease_since(1, 900s, 1));
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 50, 0);
  CHECK_FALSE(b.open(2));
  CHECK_FALSE(b.sent<Verdict>(2));
  b.pass(2s);
  CHECK_FALSE(b.core->in_grace());
  CHECK(b.sent<Verdict>(2));
  // Tenant 1 died while no arbiter ran, so its lease ended at the time of the ledger's last record.
  CHECK(b.core->leases().of_tenant(TenantId{1}, b.now) == 0s);
  CHECK_FALSE(b.core->leases().holds(TenantId{1}));
}

}  // namespace
}  // namespace sharedgpu
