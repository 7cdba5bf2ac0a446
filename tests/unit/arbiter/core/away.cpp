// SPDX-License-Identifier: Apache-2.0
// Away memory: its admission, the limits that bound it, and what a tenant sees of it.
#include "tests/unit/arbiter/core/bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kHost = 300;  // host memory in MiB, in the tests of what the tenant sees

struct Terms {
  bool oversize = true;
  bool can_be_away = true;
  Bytes cap = {};
  Bytes host_cap = {};
  Bytes host_limit = {};
  Backend backend = Backend::swap;
  std::uint32_t step = 0;
  bool resuming = false;
};

struct Away : Bench {
  using Bench::Bench;
  void arrive(std::uint64_t session, std::uint64_t tenant, const Terms& terms, const GpuUuid& gpu = kGpu) {
    Hello hello;
    hello.backend = terms.backend;
    hello.resuming = terms.resuming;
    handle(SessionCame{.session = SessionId{session},
                       .tenant = TenantId{tenant},
                       .step = {.job = static_cast<std::uint32_t>(tenant), .step = terms.step},
                       .cap = terms.cap,
                       .host_cap = terms.host_cap,
                       .oversize = terms.oversize,
                       .expected = terms.resuming,
                       .can_be_away = terms.can_be_away,
                       .host_limit = terms.host_limit,
                       .hello = hello});
    attach(session, gpu);
  }
  // The session reports `device` MiB, all resident, and `away` MiB of away memory. A `request` other than 0
  // asks for the part of this memory that was not granted before.
  void report(std::uint64_t session, unsigned device, unsigned away, std::uint64_t request = 0,
              Bytes host_limit = {}, Bytes job_host_limit = {}) {
    MemoryUse its = use(device, device);
    its.host_limit = host_limit;
    say(session,
        Usage{.request = request, .use = its, .job_host_limit = job_host_limit, .away = mebibytes(away)});
  }
  void ask_away(std::uint64_t session, unsigned device, unsigned away, Bytes host_limit = {},
                Bytes job_host_limit = {}) {
    report(session, device, away, 7, host_limit, job_host_limit);
  }
  Bytes away(std::uint64_t id) const { return session(id).away; }
  MemoryView view(std::uint64_t id) {
    ask(id);
    return sent<MemoryView>(id).value();
  }
  Bytes host_most(std::uint64_t id) const { return sent<Verdict>(id).value().host_most; }
};

// Session 1 of tenant 1 has allocated the whole GPU.
Away full(const Terms& terms = {}) {
  Away b;
  b.arrive(1, 1, terms);
  b.grow(1, 100, 0);
  b.report(1, 100, 0);
  REQUIRE(b.session(1).use.resident == mebibytes(100));
  return b;
}

TEST_CASE("Growth that the GPU has no room for is granted as away memory") {
  Away b = full();
  b.grow(1, 110, 100);
  REQUIRE(b.refused(1));
  CHECK(b.host_most(1) == Bytes{});
  b.ask_away(1, 100, 10);
  CHECK(b.granted(1));
  CHECK(b.sent<Verdict>(1)->request == 7);
  CHECK(b.away(1) == mebibytes(10));
  CHECK(b.session(1).use.swappable == mebibytes(100));
  CHECK(b.session(1).resident_limit == mebibytes(100));
  b.report(1, 100, 4);
  CHECK(b.away(1) == mebibytes(4));
}

TEST_CASE("Away memory is refused to tenants and libraries that may not have it") {
  Terms terms;
  SECTION("the site does not permit it") { terms.oversize = false; }
  SECTION("the library is too old") { terms.can_be_away = false; }
  SECTION("managed memory") { terms.backend = Backend::managed; }
  SECTION("native memory") { terms.backend = Backend::native; }
  Away b;
  b.arrive(1, 1, terms);
  b.ask_away(1, 0, 10);
  CHECK(b.refused(1));
  CHECK(b.away(1) == Bytes{});
}

TEST_CASE("Attached says whether a session may have away memory") {
  Away b;
  b.arrive(1, 1, {});
  CHECK(b.sent<Attached>(1)->oversize == 1);
  b.arrive(2, 2, {.oversize = false});
  CHECK(b.sent<Attached>(2)->oversize == 0);
  b.arrive(3, 3, {.can_be_away = false});
  CHECK(b.sent<Attached>(3)->oversize == 0);
  b.arrive(4, 4, {.backend = Backend::managed});
  CHECK(b.sent<Attached>(4)->oversize == 0);
}

TEST_CASE("A report without a request gives no away memory") {
  Away b = full();
  b.report(1, 100, 10);
  CHECK(b.away(1) == Bytes{});
}

TEST_CASE("A request for away memory gives neither memory of the GPU nor a lease") {
  Away b = full();
  b.come(2, 2);
  b.attach(2);
  b.say(2, Usage{.request = 1, .use = Bench::use(60, 0)});
  const Bytes promised = b.gpu().promised;
  // The request also reports growth on the GPU, which is not granted with it.
  b.say(1, Usage{.request = 8, .use = Bench::use(120, 120), .away = mebibytes(10)});
  CHECK(b.granted(1));
  CHECK(b.session(1).use.swappable == mebibytes(100));
  CHECK(b.session(1).resident_limit <= mebibytes(100));
  CHECK(b.gpu().promised == promised);
  b.arrive(3, 3, {});
  const bool held = b.holds(3);
  b.ask_away(3, 0, 10);
  CHECK(b.granted(3));
  CHECK(b.sent<Verdict>(3)->allowed == Bytes{});
  CHECK(b.holds(3) == held);
}

TEST_CASE("Away memory counts against each limit on host memory") {
  SECTION("of the step") {
    Away b = full();
    b.ask_away(1, 100, 50, mebibytes(150));
    CHECK(b.granted(1));
    b.ask_away(1, 100, 51, mebibytes(150));
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == mebibytes(150));
    CHECK(b.away(1) == mebibytes(50));
  }
  SECTION("of the job, with the away memory of another step") {
    Away b = full();
    b.arrive(2, 1, {.step = 1}, kOther);
    b.ask_away(2, 0, 30);
    REQUIRE(b.granted(2));
    b.ask_away(1, 100, 20, {}, mebibytes(150));
    CHECK(b.granted(1));
    b.ask_away(1, 100, 21, {}, mebibytes(150));
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == mebibytes(150));
  }
  SECTION("of the units") {
    Away b = full({.host_cap = mebibytes(150)});
    b.ask_away(1, 100, 50);
    CHECK(b.granted(1));
    b.ask_away(1, 100, 51);
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == mebibytes(150));
  }
}

// A report of `device` MiB on the GPU, `host` MiB of host memory for swap, `away` MiB of away memory, and
// `uncharged` MiB of host memory for which no cgroup is charged.
Usage holding(unsigned device, unsigned host, unsigned away, unsigned uncharged) {
  MemoryUse use = Bench::use(device, device);
  use.host = mebibytes(host);
  return {.request = 0, .use = use, .away = mebibytes(away), .uncharged = mebibytes(uncharged)};
}

TEST_CASE("Unused host memory without a charge counts if evictions and away memory do not cover it") {
  Away b;
  b.arrive(1, 1, {.host_cap = mebibytes(100)});
  b.arrive(2, 1, {.host_cap = mebibytes(100), .step = 1}, kOther);
  b.say(1, Usage{.request = 1, .use = Bench::use(40, 0)});
  b.ask_away(1, 40, 20);
  REQUIRE(b.granted(1));
  const auto second_may_have = [&](unsigned away) {
    b.ask_away(2, 0, away);
    const bool granted = b.granted(2);
    b.report(2, 0, 0);
    return granted;
  };
  const auto counts = [&](unsigned sum) { return second_may_have(100 - sum) && !second_may_have(101 - sum); };
  SECTION("the away memory itself") {
    b.say(1, holding(40, 0, 20, 20));
    CHECK(counts(60));
  }
  SECTION("away memory that is not made yet") {
    b.say(1, holding(40, 0, 20, 0));
    CHECK(counts(60));
  }
  SECTION("unused memory that gives way to an eviction of all memory on the GPU") {
    b.say(1, holding(40, 10, 20, 50));
    CHECK(counts(60));
  }
  SECTION("unused memory beside memory that is evicted") {
    b.say(1, holding(40, 10, 20, 55));
    CHECK(counts(65));
    b.say(1, holding(40, 40, 20, 25));
    CHECK(counts(65));
  }
  SECTION("until the session releases it") {
    b.say(1, holding(40, 40, 20, 30));
    b.ask_away(2, 0, 40);
    CHECK(b.refused(2));
    CHECK(b.host_most(2) == mebibytes(100));
    b.say(1, holding(40, 40, 20, 20));
    CHECK(second_may_have(40));
  }
}

TEST_CASE("Unused host memory without a charge counts against each limit on host memory") {
  Away b = full();
  b.ask_away(1, 100, 20);
  REQUIRE(b.granted(1));
  Usage growth = holding(100, 100, 30, 25);
  growth.request = 7;
  SECTION("of the step") { growth.use.host_limit = mebibytes(130); }
  SECTION("of the job") { growth.job_host_limit = mebibytes(130); }
  b.say(1, growth);
  CHECK(b.granted(1));
  growth.away = mebibytes(31);
  growth.uncharged = mebibytes(32);
  b.say(1, growth);
  CHECK(b.refused(1));
  CHECK(b.host_most(1) == mebibytes(130));
}

TEST_CASE("Memory of the GPU and away memory share the limits") {
  SECTION("on host memory") {
    Away b;
    b.arrive(1, 1, {.host_cap = mebibytes(60)});
    b.ask_away(1, 0, 50);
    REQUIRE(b.granted(1));
    b.say(1, Usage{.request = 1, .use = Bench::use(11, 0), .away = mebibytes(50)});
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == mebibytes(60));
    b.say(1, Usage{.request = 1, .use = Bench::use(10, 0), .away = mebibytes(50)});
    CHECK(b.granted(1));
  }
  SECTION("on the footprint") {
    Away b;
    b.arrive(1, 1, {.cap = mebibytes(60)});
    b.ask_away(1, 0, 50);
    REQUIRE(b.granted(1));
    b.ask_away(1, 0, 61);
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == Bytes{});
    b.say(1, Usage{.request = 1, .use = Bench::use(11, 0), .away = mebibytes(50)});
    CHECK(b.refused(1));
    b.say(1, Usage{.request = 1, .use = Bench::use(10, 0), .away = mebibytes(50)});
    CHECK(b.granted(1));
  }
}

TEST_CASE("Away memory that moves to the GPU is counted once") {
  Away b;
  b.arrive(1, 1, {.host_cap = mebibytes(60)});
  b.ask_away(1, 0, 60);
  REQUIRE(b.granted(1));
  b.say(1, Usage{.request = 1, .use = Bench::use(20, 0), .away = mebibytes(40)});
  CHECK(b.granted(1));
  CHECK(b.away(1) == mebibytes(40));
  b.report(1, 20, 30);
  CHECK(b.away(1) == mebibytes(30));
}

// If the core still counted this memory as away, it would not recognize the next request for away memory, and
// would apply no limit to that request.
TEST_CASE("Away memory that has moved to the GPU is away memory no more") {
  Away b;
  b.arrive(1, 1, {.host_cap = mebibytes(60)});
  b.arrive(2, 1, {.host_cap = mebibytes(60), .step = 1}, kOther);
  b.ask_away(1, 0, 40);
  REQUIRE(b.granted(1));
  b.say(1, Usage{.request = 2, .use = Bench::use(40, 0), .away = {}});
  REQUIRE(b.granted(1));
  SECTION("for this session") {
    b.say(1, Usage{.request = 3, .use = Bench::use(40, 40), .away = mebibytes(21)});
    CHECK(b.refused(1));
    b.say(1, Usage{.request = 4, .use = Bench::use(40, 40), .away = mebibytes(20)});
    CHECK(b.granted(1));
  }
  SECTION("for this session, if it reports while it requests") {
    b.report(1, 40, 21);
    b.say(1, Usage{.request = 3, .use = Bench::use(40, 40), .away = mebibytes(21)});
    CHECK(b.refused(1));
  }
  SECTION("for other sessions of the job") {
    b.ask_away(2, 0, 20);
    CHECK(b.granted(2));
  }
  SECTION("but a session that has withdrawn its request states that the memory is still away") {
    b.report(1, 0, 40);
    b.ask_away(1, 0, 40);
    CHECK(b.granted(1));
    CHECK(b.away(1) == mebibytes(40));
  }
}

// Other reports of the session do not tell how much away memory stays if the waiting request is refused.
TEST_CASE("Away memory that is to move to the GPU counts once while the request waits") {
  Away b;
  b.arrive(1, 1, {.host_cap = mebibytes(60)});
  b.ask_away(1, 0, 40);
  REQUIRE(b.granted(1));
  MemoryUse its = Bench::use(40, 0);
  its.host = mebibytes(70);
  b.say(1, Usage{.request = 2, .use = its, .away = {}});
  CHECK_FALSE(b.sent<Verdict>(1));
  its.host = mebibytes(50);
  b.say(1, Usage{.request = 0, .use = its, .away = mebibytes(40)});
  CHECK(b.granted(1));
}

TEST_CASE("Growth on the GPU that is refused leaves the away memory as it was") {
  Away b = full();
  b.ask_away(1, 100, 30);
  REQUIRE(b.granted(1));
  b.say(1, Usage{.request = 1, .use = Bench::use(110, 100), .away = mebibytes(20)});
  REQUIRE(b.refused(1));
  b.report(1, 100, 30);
  CHECK(b.away(1) == mebibytes(30));
}

TEST_CASE("Away memory stays when the site no longer permits it") {
  Away b = full();
  b.ask_away(1, 100, 30);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = {}});
  CHECK(b.away(1) == mebibytes(30));
  b.ask_away(1, 100, 31);
  CHECK(b.refused(1));
  b.report(1, 100, 30);
  CHECK(b.away(1) == mebibytes(30));
}

TEST_CASE("Away memory waits for the return of host memory that freed device memory occupied") {
  Away b;
  b.arrive(1, 1, {.host_cap = mebibytes(100)});
  MemoryUse its = Bench::use(20, 20);
  its.host = mebibytes(90);
  b.say(1, Usage{.request = 1, .use = its});
  b.say(1, Usage{.request = 2, .use = its, .away = mebibytes(30)});
  CHECK_FALSE(b.sent<Verdict>(1));
  CHECK(b.session(1).requests == 1);
  SECTION("until the memory is returned") {
    b.report(1, 20, 30);
    CHECK(b.granted(1));
    CHECK(b.away(1) == mebibytes(30));
  }
  SECTION("but not for long") {
    REQUIRE(b.until_sent<Verdict>(1));
    CHECK(b.refused(1));
    CHECK(b.host_most(1) == mebibytes(100));
    CHECK(b.away(1) == Bytes{});
  }
}

TEST_CASE("A restarted arbiter accepts the away memory that sessions report") {
  Recovered recovered;
  recovered.leases.grant({.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 1, .step = 0}}, Epoch{7}, 990s);
  recovered.last_epoch = Epoch{7};
  recovered.last_record = 990s;
  recovered.expected_sessions = 2;
  Away b(std::move(recovered));
  b.arrive(1, 1, {.oversize = false, .resuming = true});
  b.report(1, 50, 30);
  CHECK(b.away(1) == mebibytes(30));
  SECTION("although the site does not permit more") {
    b.pass(2s);
    b.ask_away(1, 50, 31);
    CHECK(b.refused(1));
    CHECK(b.away(1) == mebibytes(30));
  }
  SECTION("and judges requests when the recovery is over") {
    b.arrive(2, 2, {.host_cap = mebibytes(50)});
    b.ask_away(2, 0, 40);
    CHECK_FALSE(b.sent<Verdict>(2));
    b.pass(2s);
    CHECK(b.granted(2));
    CHECK(b.away(2) == mebibytes(40));
  }
}

TEST_CASE("A process that reconnects keeps its away memory") {
  Away b = full();
  b.ask_away(1, 100, 30);
  b.arrive(2, 1, {}, kOther);
  b.handle(SessionCame{.session = SessionId{3},
                       .tenant = TenantId{1},
                       .step = {.job = 1, .step = 0},
                       .cap = {},
                       .oversize = true,
                       .can_be_away = true,
                       .hello = {}});
  b.handle(SessionGone{.session = SessionId{1}, .heir = SessionId{3}});
  CHECK(b.away(3) == mebibytes(30));
  b.report(3, 100, 30);
  CHECK(b.away(3) == mebibytes(30));
}

TEST_CASE("The highest footprint includes away memory") {
  Away b = full();
  b.ask_away(1, 100, 30);
  const Sighting seen = b.core->sighting();
  REQUIRE(seen.sessions.size() == 1);
  CHECK(seen.sessions[0].footprint == mebibytes(130));
  CHECK(seen.sessions[0].resident == mebibytes(100));
}

// ---- what the tenant sees ----

TEST_CASE("A tenant that may have away memory sees the host memory that it may use") {
  Away b;
  b.arrive(1, 1, {.host_limit = mebibytes(kHost)});
  CHECK(b.sent<Attached>(1)->capacity == mebibytes(kHost));
  CHECK(b.view(1).total == mebibytes(kHost));
  CHECK(b.view(1).free == mebibytes(kHost));
  CHECK(b.view(1).away == mebibytes(kHost - 100));  // the GPU has room for the rest
  b.grow(1, 100, 0);
  b.report(1, 100, 0, 0, mebibytes(kHost));
  b.ask_away(1, 100, 50, mebibytes(kHost));
  REQUIRE(b.granted(1));
  CHECK(b.view(1).total == mebibytes(kHost));
  const Bytes free = b.view(1).free;
  CHECK(free == mebibytes(kHost - 150));
  CHECK(b.view(1).away == free);
  CHECK(b.core->room(kGpu, TenantId{1}, {}, {.job = 1, .step = 0}).free == free);
  b.ask_away(1, 100, 151 + (kHost - 150), mebibytes(kHost));
  CHECK(b.refused(1));
  b.report(1, 100, 50, 0, mebibytes(kHost));
  b.ask_away(1, 100, kHost - 100, mebibytes(kHost));  // all free memory
  CHECK(b.granted(1));
  CHECK(b.view(1).free == Bytes{});
}

TEST_CASE("A tenant without away memory sees only the GPU's memory") {
  Terms terms{.host_limit = mebibytes(kHost)};
  SECTION("if the site does not permit away memory") { terms.oversize = false; }
  SECTION("if its library is too old") { terms.can_be_away = false; }
  SECTION("if no limit on its host memory is known") { terms.host_limit = {}; }
  SECTION("if its host memory is smaller than the GPU") { terms.host_limit = mebibytes(100); }
  Away b;
  b.arrive(1, 1, terms);
  CHECK(b.sent<Attached>(1)->capacity == mebibytes(100));
  CHECK(b.view(1).total == mebibytes(100));
  CHECK(b.view(1).free == mebibytes(100));
  CHECK(b.view(1).away == Bytes{});
}

TEST_CASE(
    "A session that connected before the site permitted away memory sees no away memory until it attaches "
    "again") {
  Away b;
  b.arrive(1, 1, {.oversize = false, .host_limit = mebibytes(kHost)});
  REQUIRE(b.sent<Attached>(1)->oversize == 0);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .oversize = true});
  CHECK(b.view(1).total == mebibytes(100));
  CHECK(b.view(1).free == mebibytes(100));
  CHECK(b.core->room(kGpu, TenantId{1}, {}, {.job = 1, .step = 0}, true).total == mebibytes(100));
  b.attach(1);
  CHECK(b.sent<Attached>(1)->oversize == 1);
  CHECK(b.view(1).total == mebibytes(kHost));
}

TEST_CASE("The limit on the footprint bounds what a tenant sees") {
  Away b;
  b.arrive(1, 1, {.cap = mebibytes(151), .host_limit = mebibytes(kHost)});
  CHECK(b.sent<Attached>(1)->capacity == mebibytes(150));
  b.ask_away(1, 0, 40, mebibytes(kHost));
  CHECK(b.view(1).total == mebibytes(150));
  CHECK(b.view(1).free == mebibytes(110));
}

TEST_CASE("The GPUs of a tenant share the host memory that they show") {
  Away b;
  b.handle(Place{.tenant = TenantId{1}, .demand = {.gpus = 2}});
  b.arrive(1, 1, {.host_limit = mebibytes(kHost)});
  CHECK(b.sent<Attached>(1)->capacity == mebibytes(150));
  CHECK(b.view(1).free == mebibytes(150));
}

TEST_CASE("Away memory that stays after Oversize=no leaves no room beyond the limit") {
  Away b;
  b.arrive(1, 1, {.cap = mebibytes(60)});
  b.ask_away(1, 0, 50);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = mebibytes(60)});
  CHECK(b.view(1).total == mebibytes(60));
  CHECK(b.view(1).free == mebibytes(10));
}

TEST_CASE("The reason of a refusal counts away memory") {
  const auto explain = [](const Away& b, unsigned size, bool pinned = false) {
    return b.core->explain(SessionId{1}, mebibytes(size), pinned);
  };
  SECTION("host memory, although the tenant is larger than the GPU") {
    Away b = full({.host_cap = mebibytes(150)});
    b.ask_away(1, 100, 40);
    const RefusalReply reply = explain(b, 20);
    CHECK(reply.bound == Bound::units);
    CHECK(reply.most == mebibytes(150));
    CHECK(reply.needed == mebibytes(160));
    CHECK(reply.host == mebibytes(40));
    CHECK(explain(b, 10).bound == Bound::none);
  }
  SECTION("the limit on the footprint") {
    Away b = full({.cap = mebibytes(150)});
    b.ask_away(1, 100, 40);
    CHECK(explain(b, 20).bound == Bound::own);
    CHECK(explain(b, 20).needed == mebibytes(160));
    CHECK(explain(b, 20, true).bound == Bound::gpu);  // pinned memory is never away
  }
  SECTION("the GPU, if the tenant may not be larger") {
    Away b = full({.oversize = false, .host_cap = mebibytes(110)});
    CHECK(explain(b, 20).bound == Bound::gpu);
  }
}

}  // namespace
}  // namespace sharedgpu
