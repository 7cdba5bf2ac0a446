// SPDX-License-Identifier: Apache-2.0
// The choice of the next tenant and the end of its turn; each test covers one rule.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const TurnRules kAuto{};

// Tenants 1 and 2 have 75 MiB each, and sessions 1 and 2. Tenant 1 runs; tenant 2 has no lease, and does not
// want to run.
Bench hog_and_other(const TurnRules& turns = kAuto) {
  Bench b({}, turns);
  b.settle_in(1, 1, 75);
  b.come(2, 2);
  b.attach(2);
  b.grow(2, 75, 0);
  b.release(2, 0, false);
  b.now += 1min;
  return b;
}

// Ends the turn of `from`, which still wants to run. Tenant `to` enters when the time `took` has passed since
// `from` drained.
void hand_over_in(Bench& b, std::uint64_t from, std::uint64_t to, Nanoseconds took) {
  b.release(from, 75, true);
  b.tell(from, 75, 25);
  b.now += took;
  b.ready(to, 75);
}

Snapshot::Gpu gpu(const Bench& b) { return b.gpu(); }

TEST_CASE("The queue has the tenants in the order in which they get their turns, and the rest of the turn") {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 75);
  for (std::uint64_t id : {2u, 3u}) {
    b.come(id, id);
    b.attach(id);
    b.grow(id, 75, 0);
    b.release(id, 0, false);
  }
  b.want(1);
  b.release(1, 75, false);
  b.want(1);
  REQUIRE(b.open(1));
  CHECK(b.core->queue(kGpu, b.now).waiting.empty());
  CHECK_FALSE(b.core->queue(kGpu, b.now).turn_left);
  b.want(3);
  b.now += 1s;
  b.want(2);
  const auto ids = [&] {
    std::vector<std::uint64_t> waiting;
    for (const TenantId id : b.core->queue(kGpu, b.now).waiting) waiting.push_back(id.value);
    return waiting;
  };
  REQUIRE(b.open(1));
  CHECK(ids() == std::vector<std::uint64_t>{3, 2});
  const auto left = b.core->queue(kGpu, b.now).turn_left;
  REQUIRE(left);
  CHECK(*b.core->queue(kGpu, b.now + 2s).turn_left == *left - 2s);
  CHECK(*b.core->queue(kGpu, b.now + 1h).turn_left == 0s);
  CHECK(b.core->queue(GpuUuid{{9}}, b.now).waiting.empty());
  b.pass_by_timers(11s);
  REQUIRE_FALSE(b.open(1));
  hand_over_in(b, 1, 3, 1s);
  REQUIRE(b.open(3));
  CHECK(ids().front() == 2);
}

TEST_CASE("Turns are as long as the measured handoffs say") {
  Bench b = hog_and_other();
  CHECK(gpu(b).turn.rule == TurnRule::swap_overhead);
  CHECK(gpu(b).handoff == 0s);
  b.want(2);
  REQUIRE_FALSE(b.open(1));
  hand_over_in(b, 1, 2, 1s);
  REQUIRE(b.open(2));
  CHECK(gpu(b).handoff == 1s);
  // The handoff to tenant 1 has not been measured, so the core estimates it from the tenant's 75 MiB: almost
  // zero.
  b.pass(9s);
  REQUIRE(b.open(2));
  b.pass(1s);
  REQUIRE_FALSE(b.open(2));
  b.now += 5s;  // time of draining, which counts as work
  hand_over_in(b, 2, 1, 3s);
  REQUIRE(b.open(1));
  CHECK(gpu(b).handoff == 2s);  // the mean of both handoffs
  CHECK(gpu(b).turn.rule == TurnRule::max_wait);
  CHECK(gpu(b).turn.length == 26s);  // one turn and two handoffs take 30 s, the longest time that a tenant
                                     // may wait
  b.pass(25s);
  CHECK(b.open(1));
  b.pass(1s);
  CHECK_FALSE(b.open(1));
}

TEST_CASE("A slow first handoff counts only until the next handoff") {
  Bench b = hog_and_other();
  b.want(2);
  hand_over_in(b, 1, 2, 2s);
  CHECK(gpu(b).handoff == 2s);
  b.pass(30s);
  hand_over_in(b, 2, 1, 3s);
  CHECK(b.tenant(1).handoff == 3s);
  b.pass(30s);
  hand_over_in(b, 1, 2, 400ms);
  CHECK(b.tenant(2).handoff == 400ms);
  b.pass(30s);
  hand_over_in(b, 2, 1, 7s);
  CHECK(b.tenant(1).handoff == 4s);  // the running mean: one slow handoff does not replace the earlier ones
  b.pass(30s);
  hand_over_in(b, 1, 2, 200ms);
  CHECK(b.tenant(2).handoff == 350ms);
}

TEST_CASE("The handoffs of all its GPUs count for a domain") {
  Bench b({}, kAuto);
  b.come(1, 1);
  b.attach(1, kGpu);
  b.come(11, 1);
  b.attach(11, kOther);
  b.grow(1, 75, 0);
  b.tell(1, 75, 75);
  b.grow(11, 75, 0);
  b.tell(11, 75, 75);
  b.come(2, 2);
  b.attach(2, kOther);
  b.grow(2, 75, 0);
  b.now += 1s;
  b.release(2, 0, true);
  REQUIRE_FALSE(b.open(1));
  b.release(1, 75, true);
  b.release(11, 75, true);
  b.tell(11, 75, 25);
  b.now += 500ms;
  b.ready(2, 75);
  REQUIRE(b.open(2));
  for (const GpuUuid& uuid : {kGpu, kOther}) {
    const Snapshot::Gpu one = b.gpu(uuid);
    CHECK(one.handoff == 500ms);
    CHECK(one.turn.length == b.gpu().turn.length);
  }
}

// Tenant 2 has had one turn, which a pause of 1 s has ended, and tenant 1 has the GPU again. Both handoffs
// took 100 ms.
Bench hog_and_interactive(const TurnRules& turns = kAuto) {
  Bench b = hog_and_other(turns);
  b.want(2);
  hand_over_in(b, 1, 2, 100ms);
  b.say(2, Idle{.epoch = b.epoch(2), .idle = 1s});
  b.release(2, 75, false);
  b.tell(2, 75, 25);
  b.now += 100ms;
  b.ready(1, 75);
  return b;
}

TEST_CASE("A tenant that pauses for long preempts a tenant that always works, and pays for it") {
  Bench b = hog_and_interactive();
  REQUIRE(b.open(1));
  SECTION("not before it has earned the handoffs there and back") {
    b.pass(100ms);
    b.want(2);
    CHECK(b.open(1));
  }
  SECTION("at once when it has") {
    b.pass(1s);
    CHECK(b.tenant(2).lag > 200ms);
    const Nanoseconds before = b.tenant(2).lag;
    b.want(2);
    REQUIRE_FALSE(b.open(1));
    CHECK(b.tenant(2).lag == before - 200ms);
    hand_over_in(b, 1, 2, 100ms);
    REQUIRE(b.open(2));
    // After a quarter of a second of work the tenant yields, and the other tenant continues with the rest of
    // its turn.
    b.pass(250ms);
    b.say(2, Idle{.epoch = b.epoch(2), .idle = 120ms});
    REQUIRE_FALSE(b.open(2));
    b.release(2, 75, false);
    b.tell(2, 75, 25);
    b.want(2);
    b.ready(1, 75);
    REQUIRE(b.open(1));
    CHECK(b.now - b.tenant(1).turn_began == 1s);
  }
}

TEST_CASE("No tenant preempts a turn of a fixed quantum") {
  Bench b = hog_and_interactive({.fixed = 10s});
  b.pass(9s);
  b.want(2);
  CHECK(b.open(1));
  b.pass(1s);
  CHECK_FALSE(b.open(1));
}

TEST_CASE("A tenant that has earned time is not preempted, but its turn ends like any other") {
  Bench b({}, kAuto);
  b.settle_in(1, 1, 75);
  for (std::uint64_t id : {2, 3}) {
    b.come(id, id);
    b.attach(id);
    b.grow(id, 75, 0);
    b.release(id, 0, false);
  }
  b.pass(1s);
  b.want(2);
  REQUIRE_FALSE(b.open(1));
  hand_over_in(b, 1, 2, 100ms);
  REQUIRE(b.open(2));
  b.want(3);
  CHECK(b.open(2));
  b.pass(2100ms);
  CHECK_FALSE(b.open(2));
}

TEST_CASE("After a long pause the next pause ends the turn sooner, while a short pause undoes this") {
  Bench b = hog_and_interactive();  // tenant 2 is in its first pause
  const auto burst = [&] {
    b.want(2);
    hand_over_in(b, 1, 2, 100ms);
    REQUIRE(b.open(2));
  };
  const auto idle = [&](Nanoseconds time) {
    b.now += time;
    b.say(2, Idle{.epoch = b.epoch(2), .idle = time});
    return !b.open(2);
  };
  b.pass(3s);
  burst();
  CHECK(b.tenant(2).long_pauses == 1);
  CHECK_FALSE(idle(45ms));
  REQUIRE(idle(55ms));
  b.release(2, 75, false);
  b.want(2);  // tenant 2 has not paused
  CHECK(b.tenant(2).long_pauses == 0);
}

TEST_CASE("A footprint that varies around the largest size that fits costs one handoff per turn") {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 50);
  b.settle_in(2, 2, 48);
  REQUIRE(b.open(1));
  REQUIRE(b.open(2));
  int put_out = 0;
  const auto answer = [&](std::uint64_t id) {
    const bool leaves = b.sent<Revoke>(id).has_value();
    if (!leaves) return;
    ++put_out;
    const MemoryUse its = b.session(id).use;
    b.release(id, true, its);
  };
  // The first tenant grows or shrinks twice a second for 30 s. The second tenant always wants to run.
  for (int i = 0; i < 60; ++i) {
    b.grow(1, i % 2 == 0 ? 53 : 50, 50);
    answer(1);
    answer(2);
    for (std::uint64_t id : {1, 2})
      if (b.tenant(id).phase == Phase::entering) {
        const MemoryUse its = b.session(id).use;
        b.say(id, Ready{.epoch = b.epoch(id), .use = {its.swappable, its.swappable, {}, {}, {}}});
      }
    b.pass(500ms);
    answer(1);
    answer(2);
  }
  CHECK(put_out >= 1);
  CHECK(put_out <= 2 * 4);
}

TEST_CASE(
    "A tenant displaced by growth returns as soon as it fits beside the largest footprints of that turn") {
  Bench b({}, {.fixed = 10s});
  b.settle_in(1, 1, 50);
  b.settle_in(2, 2, 48);
  b.grow(2, 53, 48);
  REQUIRE_FALSE(b.open(2));
  b.release(2, true, b.use(53, 48));
  b.tell(2, 45, 45);
  CHECK(b.tenant(2).phase == Phase::out);  // tenant 2 had 53 MiB in this turn, and tenant 1 had 50 MiB
  SECTION("the other shrinks") {
    b.tell(1, 47, 47);
    CHECK(b.tenant(2).phase == Phase::out);
  }
  SECTION("the other ends") {
    b.handle(SessionGone{.session = SessionId{1}});
    CHECK(b.tenant(2).phase == Phase::entering);
  }
  SECTION("the turn ends") {
    b.pass(10s);
    CHECK(b.tenant(2).phase == Phase::entering);
    CHECK(b.open(1));
  }
}

TEST_CASE("Each GPU has its own rules, and the GPUs of a domain have the rules of the first one") {
  const std::unique_ptr<Policy> credit = make_policy("credit");
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Bench b;
  const TurnRules seven{.fixed = 7s};
  const Rules other{.policy = elastic.get(), .turns = seven, .all_timed = true};
  b.handle(RulesSet{.node = {.policy = credit.get(), .turns = {.fixed = 5s}}, .own = {{kOther, other}}});
  b.come(1, 1);
  CHECK(b.tenant(1).policy == credit.get());  // the core does not know which GPU the tenant will use
  b.attach(1, kOther);
  CHECK(b.tenant(1).policy == elastic.get());
  CHECK(b.tenant(1).exclusive);
  b.come(2, 2);
  b.attach(2, kGpu);
  CHECK(b.tenant(2).policy == credit.get());
  CHECK_FALSE(b.tenant(2).exclusive);
  const auto turn_of = [&](const GpuUuid& gpu) { return b.gpu(gpu).turn.length; };
  CHECK(turn_of(kGpu) == 5s);
  CHECK(turn_of(kOther) == 7s);

  b.come(3, 3);
  b.attach(3, kGpu);
  b.come(4, 3);
  b.attach(4, kOther);
  for (std::uint64_t tenant : {1, 2, 3}) CHECK(b.tenant(tenant).policy == credit.get());
  CHECK_FALSE(b.tenant(1).exclusive);
  CHECK(turn_of(kOther) == 5s);
  CHECK(b.gpu(kOther).policy == credit.get());

  b.handle(SessionGone{.session = SessionId{4}});
  CHECK(b.tenant(1).policy == elastic.get());
  CHECK(b.tenant(3).policy == credit.get());
  CHECK(turn_of(kOther) == 7s);
  b.handle(RulesSet{.node = {.policy = credit.get(), .turns = seven}});
  CHECK(b.tenant(1).policy == credit.get());
}

TEST_CASE("A tenant that gives its turn back early makes room for waiting tenants, and keeps its lag") {
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Bench b({}, kAuto);
  b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = kAuto}});
  for (std::uint64_t id : {1u, 2u}) {
    b.come(id, id);
    b.attach(id);
    b.handle(CapSet{.tenant = TenantId{id}, .cap = {}, .claims = {.request = 0.5, .timed = true}});
  }
  b.want(1);
  REQUIRE(b.open(1));
  b.say(1, GiveBack{.epoch = b.epoch(1)});
  CHECK(b.session(1).turn_ends == 0s);
  CHECK(b.open(1));  // nobody waits
  b.want(2);
  REQUIRE(b.open(1));
  REQUIRE(b.session(1).turn_ends > b.now);
  b.now += 1ms;
  b.say(1, GiveBack{.epoch = Epoch{b.epoch(1).value + 1}});
  CHECK(b.open(1));
  const Nanoseconds before = b.tenant(1).lag;
  b.say(1, GiveBack{.epoch = b.epoch(1)});
  CHECK_FALSE(b.open(1));
  CHECK(b.session(1).turn_ends == 0s);
  CHECK(b.tenant(1).lag == before);
  b.release(1, 0, true);
  CHECK(b.open(2));
}

// While no tenant can enter, the core does not compute which tenants are throttled, or for how long.
TEST_CASE(
    "A throttled tenant enters once it has earned the time, even if the other tenants have left meanwhile") {
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Bench b({}, kAuto);
  b.settle_in(1, 1, 100);
  b.queue_up(2, 2, 100);
  b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = kAuto}});
  b.handle(CapSet{.tenant = TenantId{2}, .cap = {}, .claims = {.limit = 0.5, .timed = true}});
  const auto end_turn_of = [&](std::uint64_t id) {
    while (b.open(id)) b.pass_to_timer();
  };
  const auto hand_all_over = [&](std::uint64_t from, std::uint64_t to) {
    b.release(from, 100, true);
    b.tell(from, 100, 0);
    b.ready(to, 100);
    REQUIRE(b.open(to));
  };
  end_turn_of(1);
  hand_all_over(1, 2);
  end_turn_of(2);
  b.now += 1s;  // tenant 2 drains for a second
  hand_all_over(2, 1);
  const Nanoseconds debt = -b.tenant(2).lag;
  REQUIRE(debt > 500ms);

  const Nanoseconds left = b.now;
  b.handle(SessionGone{.session = SessionId{1}});
  while (b.tenant(2).phase == Phase::out) b.pass_to_timer();
  CHECK(b.now - left >= 2 * debt);
  CHECK(b.now - left < 2 * debt + 1ms);
}

// Tenants 1 and 2 have stated shares, and fit on the GPU together. Tenant 1 runs. Tenant 2 has no lease, and
// does not want to run.
struct Ruled : Bench {
  Ruled() : Bench({}, kAuto) {
    handle(RulesSet{.node = {.policy = elastic.get(), .turns = kAuto}});
    for (std::uint64_t id : {1u, 2u}) {
      come(id, id);
      attach(id);
      state(id, {.request = 0.5, .timed = true});
    }
  }
  void state(std::uint64_t id, const Claims& claims) {
    handle(CapSet{.tenant = TenantId{id}, .cap = {}, .claims = claims});
  }
  bool told_of_end(std::uint64_t id) const {
    return std::any_of(last.begin(), last.end(), [id](const Action& action) {
      const auto* ends = std::get_if<SetTurnEnds>(&action);
      return ends != nullptr && ends->session == SessionId{id};
    });
  }
  std::unique_ptr<Policy> elastic = make_policy("elastic");
};

TEST_CASE("A turn's end is told once, and only if the tenant has a single process") {
  Ruled b;
  SECTION("one process") {
    b.want(1);
    b.want(2);
    CHECK(b.told_of_end(1));
    CHECK(b.session(1).turn_ends > b.now);
    b.pass(1ms);
    CHECK_FALSE(b.told_of_end(1));
    CHECK(b.session(2).turn_ends == 0s);
  }
  SECTION("two processes") {
    b.come(3, 1);
    b.attach(3);
    b.state(1, {.request = 0.5, .timed = true});
    b.want(1);
    b.want(2);
    REQUIRE(b.open(1));
    CHECK(b.session(1).turn_ends == 0s);
    CHECK(b.session(3).turn_ends == 0s);
  }
}

TEST_CASE("The lease page of a tenant without a timed turn states no end of turn") {
  for (const bool timed : {false, true}) {
    const std::unique_ptr<Policy> elastic = make_policy("elastic");
    Bench b = hog_and_other();
    const TurnRules rules{.fixed = 24h};  // long, so that the turn does not end before the checks
    b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = rules}});
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = {.timed = timed}});
    REQUIRE(b.open(1));
    b.want(2);
    CHECK(b.open(1));
    CHECK((b.session(1).turn_ends > b.now) == timed);
    b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = kAuto}});
  }
}

TEST_CASE("The tenant that has the GPU is told that others wait") {
  Bench b = hog_and_other({.fixed = 1h});
  b.want(2);
  REQUIRE(b.open(1));
  CHECK(b.sent<OthersWait>(1));
  CHECK_FALSE(b.sent<OthersWait>(2));
  b.pass(1ms);
  CHECK_FALSE(b.sent<OthersWait>(1));
}

TEST_CASE("A burst is measured only while others wait, since sessions report idleness only then") {
  SECTION("its turn is over") {
    Bench b = hog_and_other({.fixed = 1s});
    b.want(2);
    REQUIRE_FALSE(b.open(1));
    CHECK(b.tenant(1).used == 0s);
  }
  SECTION("its turn goes on") {
    Bench b = hog_and_other({.fixed = 2min});
    b.want(2);
    REQUIRE(b.open(1));
    b.pass(1min);
    REQUIRE_FALSE(b.open(1));
    CHECK(b.tenant(1).used == 1min);
  }
}

TEST_CASE("A tenant with timed turns has the GPU alone, but does not wait forever for the work of others") {
  Ruled b;
  b.want(1);
  b.want(2);
  while (b.open(1)) b.pass_to_timer();
  CHECK_FALSE(b.open(2));
  const Nanoseconds left = b.now;
  SECTION("1 has drained") {
    b.pass(1s);
    CHECK_FALSE(b.open(2));
    b.release(1, 0, true);
    CHECK(b.open(2));
  }
  SECTION("1 does not drain") {
    while (!b.open(2)) b.pass_to_timer();
    CHECK(b.now - left == 10s);
  }
}

TEST_CASE("A stopped tenant has no share of the time") {
  Ruled b;
  b.want(1);
  b.want(2);
  REQUIRE(b.tenant(1).due == Approx(0.5));
  b.handle(Looked{.session = SessionId{2}, .stopped = true});
  CHECK(b.tenant(1).due == Approx(1));
  CHECK(b.tenant(2).share == 0);
  CHECK(b.tenant(2).due_now == 0);
  b.handle(Looked{.session = SessionId{2}, .stopped = false});
  CHECK(b.tenant(2).due == Approx(0.5));
}

TEST_CASE("The time of a GPU is divided among the tenants on it, even if one of them uses two GPUs") {
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Bench b;
  b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = kAuto}});
  const auto come = [&](std::uint64_t session, std::uint64_t tenant, const GpuUuid& gpu, double request) {
    b.come(session, tenant);
    b.attach(session, gpu);
    b.handle(CapSet{.tenant = TenantId{tenant}, .cap = {}, .claims = {.request = request, .timed = true}});
  };
  come(1, 1, kGpu, 0.6);
  come(2, 2, kGpu, 0.1);
  come(3, 3, kOther, 0.2);
  come(4, 4, kGpu, 0.1);
  come(5, 4, kOther, 0.1);
  for (std::uint64_t session : {1, 2, 3})
    if (!b.open(session)) b.want(session);
  CHECK(b.tenant(1).due == Approx(0.75));
  CHECK(b.tenant(2).due == Approx(0.25));
  CHECK(b.tenant(3).due == Approx(1));
  CHECK(b.tenant(1).share + b.tenant(2).share + b.tenant(3).share == Approx(1));
  // A tenant on two GPUs has the same share on both: the smaller of the two shares.
  b.want(4);
  CHECK(b.tenant(1).due == Approx(0.6 + 0.2 / 3));
  CHECK(b.tenant(3).due == Approx(0.2 + 0.7 / 2));
  CHECK(b.tenant(4).due == Approx(0.1 + 0.2 / 3));
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = kAuto}});
}

TEST_CASE("A tenant's debt remains when its next process comes") {
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  Bench b;
  b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = kAuto}});
  const Claims limited{.request = 0.1, .limit = 0.1, .timed = true};
  const auto come = [&](std::uint64_t session) {
    b.handle(SessionCame{.session = SessionId{session},
                         .tenant = TenantId{1},
                         .step = {.job = 1, .step = 0},
                         .cap = {},
                         .claims = limited,
                         .expected = false,
                         .hello = {}});
    b.attach(session);
    if (!b.open(session)) b.want(session);
  };
  come(1);
  REQUIRE(b.open(1));
  b.pass(1s);  // a kernel runs
  b.handle(SessionGone{.session = SessionId{1}});
  b.pass(100ms);
  come(2);
  CHECK(!b.open(2));
  CHECK(b.tenant(1).lag < -850ms);
  b.pass(8s);
  CHECK(!b.open(2));
  b.pass(1s);
  CHECK(b.open(2));
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = kAuto}});
}

TEST_CASE("A tenant that was idle and stops reporting it is at work again") {
  for (const Nanoseconds since : {400ms, 700ms}) {
    Bench b = hog_and_other({.fixed = 1h});
    b.say(1, Idle{.epoch = b.epoch(1), .idle = 1s});
    b.now += since;
    b.want(2);
    CHECK(b.open(1) == (since > 600ms));
  }
}

TEST_CASE("The burst of a tenant is a running mean, in which the last burst counts for a quarter") {
  Bench b = hog_and_other();
  const auto burst = [&b](Nanoseconds time) {
    b.want(2);
    while (b.open(1)) b.pass(1s);
    hand_over_in(b, 1, 2, 100ms);
    REQUIRE(b.open(2));
    b.pass(time + 100ms);  // the tenant is idle at the end of this time
    b.say(2, Idle{.epoch = b.epoch(2), .idle = 100ms});
    REQUIRE_FALSE(b.open(2));
    b.release(2, 75, false);
    b.tell(2, 75, 25);
    b.ready(1, 75);
    REQUIRE(b.open(1));
    b.pass(10s);
  };
  burst(400ms);
  burst(800ms);
  CHECK(b.tenant(2).mean_burst == 400ms);
  burst(200ms);
  CHECK(b.tenant(2).mean_burst == 500ms);
}

}  // namespace
}  // namespace sharedgpu
