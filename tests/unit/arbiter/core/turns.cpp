// SPDX-License-Identifier: Apache-2.0
// Tests which tenant gets another turn or the rest of its turn, the effects of a turn on its tenants,
// exclusive tenants, and events about unknown tenants, sessions and GPUs.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Ends the turn of `from`: `from` drains and evicts, and `to` restores its memory. `wants`: `from` still
// wants to run.
void hand_over(Bench& b, std::uint64_t from, std::uint64_t to, bool wants = true) {
  REQUIRE_FALSE(b.open(from));
  b.release(from, 60, wants);
  b.tell(from, 60, 40);
  b.ready(to, 60);
  REQUIRE(b.open(to));
}

// ---- another turn, and the rest of a turn ----

TEST_CASE("A tenant with a larger share than the waiting tenant has a second turn of the same length") {
  Bench b;
  const std::unique_ptr<Policy> credit = make_policy("credit");
  b.handle(RulesSet{.node = {.policy = credit.get(), .turns = {.fixed = 10s}}});
  b.settle_in(1, 1, 60);
  b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = {.units = 3}});
  b.queue_up(2, 2, 60);
  b.pass_by_timers(10s);
  hand_over(b, 1, 2);
  b.pass_by_timers(10s);
  hand_over(b, 2, 1);
  const Nanoseconds begun = b.now;
  b.pass_by_timers(10s);
  REQUIRE(b.tenant(1).lag > b.tenant(2).lag);
  CHECK(b.open(1));
  CHECK(b.tenant(1).turn_began == begun + 10s);
  CHECK(b.until_sent<Revoke>(1) == 10s);
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 10s}}});
}

TEST_CASE("A tenant that leaves because it is idle is not preempted: its next turn has the full length") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(3s);
  b.say(1, Idle{.epoch = b.epoch(1), .idle = 1s});
  hand_over(b, 1, 2);
  b.pass_by_timers(10s);
  hand_over(b, 2, 1);
  CHECK(b.tenant(1).turn_began == b.now);
  CHECK(b.until_sent<Revoke>(1) == 10s);
}

TEST_CASE("A tenant that left because it was idle comes after tenants that have waited longer") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.queue_up(3, 3, 60);
  b.pass_by_timers(1s);
  b.say(1, Idle{.epoch = b.epoch(1), .idle = 1s});
  hand_over(b, 1, 2);
  b.pass_by_timers(10s);
  b.release(2, 60, true);
  CHECK(b.tenant(3).phase == Phase::entering);
  CHECK(b.tenant(1).phase == Phase::out);
}

TEST_CASE("A turn begins for all of its members when the gates of its leader open") {
  Bench b;
  b.settle_in(1, 1, 100);
  b.queue_up(4, 4, 30);
  b.pass_by_timers(1s);
  b.queue_up(3, 3, 60);
  b.pass_by_timers(9s);
  b.release(1, 100, true);
  b.tell(1, 100, 10);
  REQUIRE(b.tenant(3).phase == Phase::entering);
  b.pass_by_timers(2s);
  b.ready(4, 30);
  REQUIRE(b.open(4));
  REQUIRE_FALSE(b.open(3));
  CHECK(b.tenant(3).turn_began == b.now);
  const Nanoseconds begun = b.now;
  b.pass_by_timers(1s);
  b.ready(3, 60);
  REQUIRE(b.open(3));
  CHECK(b.tenant(3).turn_began == begun);
}

TEST_CASE("A member that cannot make room for the first waiting tenant makes room for the next one") {
  Bench b;
  b.settle_in(1, 1, 30);
  b.settle_in(2, 2, 50);
  b.queue_up(3, 3, 60);
  b.pass_by_timers(1s);
  b.queue_up(4, 4, 25);
  REQUIRE(b.open(1));
  REQUIRE(b.open(2));
  b.say(1, Idle{.epoch = b.epoch(1), .idle = 1s});
  CHECK_FALSE(b.open(1));
  CHECK(b.open(2));
  CHECK(b.tenant(4).phase == Phase::entering);
  CHECK(b.tenant(3).phase == Phase::out);
}

// ---- orders ----

TEST_CASE("Each Revoke and each Step has its own number, and only the last one can be answered") {
  Bench b;
  b.settle_in(2, 2, 30);
  b.settle_in(3, 2, 30);
  b.queue_up(1, 1, 75);
  b.pass(10s);
  REQUIRE(b.sent<Revoke>(2));
  REQUIRE(b.sent<Revoke>(3));
  const std::uint64_t revoked = b.sent<Revoke>(2)->order;
  CHECK(b.sent<Revoke>(3)->order > revoked);
  b.release(2, 30, true);
  b.pass(100ms);
  REQUIRE(b.sent<Step>(2));
  CHECK(b.sent<Step>(2)->order > b.told[3].order);
  b.say(2, Released{.epoch = b.epoch(2), .order = revoked, .wants = 1, .use = Bench::use(30, 30)});
  CHECK_FALSE(b.session(2).drained);
  b.release(2, 30, true);
  CHECK(b.session(2).drained);
}

TEST_CASE("A tenant that is told to leave twice in a turn without a Restore gets two different orders") {
  Bench b;
  b.come(1, 1);
  b.attach(1);
  std::vector<std::uint64_t> orders;
  for (int i = 0; i < 3; ++i) {
    b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
    REQUIRE(b.sent<Revoke>(1));
    orders.push_back(b.sent<Revoke>(1)->order);
    b.release(1, 0, true);
    b.handle(Suspend{.tenant = TenantId{1}, .suspended = false});
    if (!b.open(1)) b.ready(1, 0);
    REQUIRE(b.open(1));
  }
  CHECK(orders[0] < orders[1]);
  CHECK(orders[1] < orders[2]);
}

TEST_CASE("A new session of a tenant with the GPU has the lease, and drains with the other sessions") {
  Bench b;
  b.settle_in(1, 1, 10);
  b.handle(SessionCame{
      .session = SessionId{2}, .tenant = TenantId{1}, .step = {.job = 1, .step = 5}, .cap = {}, .hello = {}});
  b.attach(2);
  CHECK(b.open(2));
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 1, .step = 5}};
  CHECK(b.written.open(key).has_value());
  SECTION("its step's lease ends with it, and that of the other goes on") {
    b.handle(SessionGone{SessionId{2}});
    CHECK_FALSE(b.written.open(key).has_value());
    CHECK(b.holds(1));
  }
  SECTION("its process's end is not the end of a lease that another process of its step has") {
    b.handle(SessionCame{.session = SessionId{3},
                         .tenant = TenantId{1},
                         .step = {.job = 1, .step = 5},
                         .cap = {},
                         .hello = {}});
    b.attach(3);
    b.handle(SessionGone{SessionId{2}});
    CHECK(b.written.open(key).has_value());
  }
  SECTION("both drain") {
    b.handle(Suspend{.tenant = TenantId{1}, .suspended = true});
    REQUIRE(b.sent<Revoke>(1));
    REQUIRE(b.sent<Revoke>(2));
    b.release(1, 10, false);
    CHECK(b.holds(1));
    b.release(2, 0, false);
    CHECK_FALSE(b.holds(1));
  }
}

// ---- effects of a turn on accounts, idleness, pages and polls ----

TEST_CASE("While others wait, the tenants with the GPU share its cost, and all tenants earn their shares") {
  Bench b;
  const std::unique_ptr<Policy> credit = make_policy("credit");
  b.handle(RulesSet{.node = {.policy = credit.get(), .turns = {.fixed = 1h}}});
  b.settle_in(1, 1, 40);
  b.settle_in(3, 3, 20);
  b.pass(6s);
  for (std::uint64_t id : {1, 3}) CHECK(b.tenant(id).lag == 0s);
  b.queue_up(2, 2, 60);
  b.pass(6s);
  const auto seconds = [&b](std::uint64_t id) {
    return std::chrono::duration<double>(b.tenant(id).lag).count();
  };
  CHECK(seconds(1) == Approx(6 * (1. / 3 - 1. / 2)));
  CHECK(seconds(3) == Approx(6 * (1. / 3 - 1. / 2)));
  CHECK(seconds(2) == Approx(6 * (1. / 3)));
  SECTION("another policy begins at zero") {
    b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 1h}}});
    for (std::uint64_t id : {1, 2, 3}) CHECK(b.tenant(id).lag == 0s);
    b.handle(RulesSet{.node = {.policy = credit.get(), .turns = {.fixed = 1h}}});
    b.pass(3s);
    CHECK(seconds(2) == Approx(3 * (1. / 3)));
  }
  SECTION("the same policy goes on") {
    b.handle(RulesSet{.node = {.policy = credit.get(), .turns = {.fixed = 2h}}});
    CHECK(seconds(2) == Approx(2));
  }
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 1h}}});
}

TEST_CASE("Idleness that ended a turn does not end the next one") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass_by_timers(1s);
  b.say(1, Idle{.epoch = b.epoch(1), .idle = 1s});
  hand_over(b, 1, 2);
  b.say(2, Idle{.epoch = b.epoch(2), .idle = 1s});
  hand_over(b, 2, 1);
  CHECK(b.told[1].page.contended);
  b.pass(1ms);
  CHECK(b.open(1));
}

TEST_CASE("The lease pages of all sessions on all GPUs agree with the core") {
  Bench b;
  const auto check_pages = [&b] {
    for (const Snapshot::Session& its : b.core->snapshot().sessions) {
      const simulation::Page& page = b.told[its.id.value].page;
      CHECK(page.open == its.gate_open);
      CHECK(page.contended == its.contended);
      CHECK(page.oversubscribed == its.oversubscribed);
      CHECK(page.queue == its.queue);
    }
  };
  b.settle_in(1, 1, 60);
  b.settle_in(4, 1, 5);
  b.come(5, 1);
  b.attach(5, kOther);
  check_pages();
  CHECK_FALSE(b.told[1].page.oversubscribed);
  b.queue_up(2, 2, 60);
  check_pages();
  for (std::uint64_t id : {1, 4, 5}) {
    CHECK(b.told[id].page.contended);
    CHECK(b.told[id].page.oversubscribed);
  }
  b.handle(SessionGone{.session = SessionId{2}});
  check_pages();
  CHECK_FALSE(b.told[1].page.contended);
  CHECK_FALSE(b.told[5].page.oversubscribed);
  CHECK_FALSE(b.sent<OthersWait>(1));
}

TEST_CASE(
    "A session that runs is looked at half a second after others began to wait for it, each time anew") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.pass(1s);
  CHECK_FALSE(b.looked_at(1));
  for (std::uint64_t id : {2, 3}) {
    b.queue_up(id, id, 60);
    REQUIRE(b.told[1].page.contended);
    CHECK_FALSE(b.looked_at(1));
    b.pass(499ms);
    CHECK_FALSE(b.looked_at(1));
    b.pass(1ms);
    CHECK(b.looked_at(1));
    b.handle(SessionGone{.session = SessionId{id}});
    b.pass(1s);
    CHECK_FALSE(b.looked_at(1));
  }
}

TEST_CASE("A tenant whose time is limited takes turns even if it is alone") {
  Bench b;
  const std::unique_ptr<Policy> elastic = make_policy("elastic");
  b.handle(RulesSet{.node = {.policy = elastic.get(), .turns = {}}});
  b.settle_in(1, 1, 10);
  const auto state = [&b](const Claims& claims) {
    b.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = claims});
    return b.session(1).oversubscribed;
  };
  CHECK_FALSE(state({.timed = true}));
  CHECK_FALSE(state({.limit = 0.5, .timed = false}));
  CHECK(state({.limit = 0.5, .timed = true}));
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 1h}}});
}

TEST_CASE("New rules apply at once to a GPU that nobody uses") {
  Bench b;
  b.handle(RulesSet{.node = {.policy = b.policy.get(), .turns = {.fixed = 5s}}});
  CHECK(b.gpu(kGpu).turn.length == 5s);
  CHECK(b.gpu(kOther).turn.length == 5s);
}

TEST_CASE("A tenant has waited since the first of its sessions asked") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(2, 2, 20);
  b.settle_in(3, 2, 20);
  b.grow(2, 60, 20);
  b.release(2, false, Bench::use(60, 20));
  b.release(3, false, Bench::use(20, 20));
  REQUIRE(b.tenant(2).phase == Phase::out);
  b.pass(3s);
  b.want(3);
  CHECK(b.tenant(2).wants);
  const Nanoseconds asked = b.now;
  b.pass(1s);
  b.want(2);
  CHECK(b.tenant(2).waiting_since == asked);
}

// ---- exclusive tenants ----

// Tenants 1 and 2 use a GPU that has room for both. The tenant with the number `exclusive` is exclusive; 0:
// none.
struct Exclusive : Bench {
  explicit Exclusive(std::uint64_t exclusive) {
    handle(RulesSet{.node = {.policy = elastic.get(), .turns = {.fixed = 10s}}});
    for (std::uint64_t id : {1u, 2u}) {
      settle_in(id, id, 10);
      handle(CapSet{.tenant = TenantId{id}, .cap = {}, .claims = {.timed = id == exclusive}});
    }
  }
  std::unique_ptr<Policy> elastic = make_policy("elastic");
};

TEST_CASE("An exclusive tenant has the GPU alone, and enters only when others have drained") {
  const std::uint64_t exclusive = GENERATE(1, 2);
  CAPTURE(exclusive);
  Exclusive b(exclusive);
  for (std::uint64_t id : {1u, 2u})
    if (b.tenant(id).phase == Phase::leaving) b.release(id, 10, true);
  REQUIRE(b.tenant(exclusive).exclusive);
  REQUIRE(b.open(1) != b.open(2));
  for (int turn = 0; turn < 3; ++turn) {
    const std::uint64_t has = b.open(1) ? 1 : 2;
    const std::uint64_t other = 3 - has;
    b.want(other);
    for (int i = 0; i < 100 && b.open(has); ++i) b.pass_to_timer();
    REQUIRE_FALSE(b.open(has));
    b.ready(other, 10);
    CHECK_FALSE(b.open(other));
    b.pass(1s);
    CHECK_FALSE(b.open(other));
    b.release(has, 10, true);
    if (!b.open(other)) b.ready(other, 10);
    CHECK(b.open(other));
    CHECK_FALSE(b.open(has));
  }
}

TEST_CASE("If no tenant is exclusive, all tenants that fit run together") {
  Exclusive b(0);
  CHECK(b.open(1));
  CHECK(b.open(2));
}

// ---- the end of the recovery ----

struct Recovering : Bench {
  Recovering() : Bench(with_lease()) {}
  static Recovered with_lease() {
    Recovered recovered;
    const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 1, .step = 0}};
    recovered.leases.grant(key, Epoch{7}, 990s);
    recovered.last_epoch = Epoch{7};
    recovered.last_record = 990s;
    recovered.expected_sessions = 2;
    return recovered;
  }
  void come_back(std::uint64_t session, std::uint64_t tenant, bool held) {
    Hello hello;
    hello.resuming = 1;
    hello.held = held ? 1 : 0;
    hello.epoch = Epoch{7};
    come(session, tenant, hello);
    attach(session);
  }
};

TEST_CASE("The recovery lasts for 2 s and no longer, and the core wakes up for its end") {
  Recovering b;
  b.pass(1ms);
  REQUIRE(b.timer == 1002s);
  b.pass_by_timers(1998ms);
  CHECK(b.core->in_grace());
  b.pass_by_timers(1ms);
  CHECK_FALSE(b.core->in_grace());
}

TEST_CASE("A session that was expected counts once towards the end of the recovery") {
  Recovering b;
  b.come_back(1, 1, true);
  b.tell(1, 10, 10);
  REQUIRE(b.core->in_grace());
  SECTION("it tells again") { b.tell(1, 10, 10); }
  SECTION("it ends") { b.handle(SessionGone{.session = SessionId{1}}); }
  CHECK(b.core->in_grace());
}

TEST_CASE("A session that nobody expected does not count towards the end of the recovery") {
  Recovering b;
  b.come_back(1, 1, true);
  b.tell(1, 10, 10);
  b.come(5, 5);
  b.attach(5);
  b.tell(5, 0, 0);
  b.handle(SessionGone{.session = SessionId{5}});
  CHECK(b.core->in_grace());
}

TEST_CASE("A session that reconnected without the lease counts when it has drained, not when it reports") {
  Recovering b;
  b.come_back(1, 1, true);
  b.tell(1, 10, 10);
  b.come_back(2, 2, false);
  b.tell(2, 10, 10);
  CHECK(b.core->in_grace());
  b.release(2, 10, false);
  CHECK_FALSE(b.core->in_grace());
}

TEST_CASE(
    "A tenant whose sessions never come back is forgotten when the recovery ends, or when it begins at "
    "zero") {
  Recovering b;
  b.pass(1ms);
  const auto known = [&b] { return b.core->snapshot().find(TenantId{1}) != nullptr; };
  REQUIRE(known());
  SECTION("the recovery ends") { b.pass(2s); }
  SECTION("it begins at zero") { b.core->forget(TenantId{1}); }
  CHECK_FALSE(known());
}

// ---- events about unknown tenants, sessions and GPUs ----

TEST_CASE("A session that names a GPU which nobody knows is dropped") {
  Bench b;
  b.come(1, 1);
  b.attach(1, kThird);
  CHECK(std::any_of(b.last.begin(), b.last.end(),
                    [](const Action& action) { return std::holds_alternative<Drop>(action); }));
  CHECK_FALSE(b.sent<Attached>(1));
}

TEST_CASE("Only a GPU that the arbiter knows from sessions alone is forgotten with the last of them") {
  Bench b;
  b.handle(GpuFound{.gpu = kThird, .total = mebibytes(120), .capacity = mebibytes(100), .learned = true});
  b.settle_in(1, 1, 10);
  for (std::uint64_t id : {2u, 3u}) {
    b.come(id, id);
    b.attach(id, kThird);
  }
  b.handle(SessionGone{.session = SessionId{2}});
  CHECK_NOTHROW(b.gpu(kThird));
  b.handle(SessionGone{.session = SessionId{3}});
  CHECK_THROWS(b.gpu(kThird));
  b.handle(SessionGone{.session = SessionId{1}});
  CHECK_NOTHROW(b.gpu(kGpu));
  // The core has kept no sizes of the forgotten GPU. A GPU that is found later has its own sizes.
  b.handle(GpuFound{.gpu = {{4}}, .total = mebibytes(60), .capacity = mebibytes(50), .learned = true});
  b.come(4, 4);
  b.attach(4, {{4}});
  CHECK(b.gpu({{4}}).usable == mebibytes(50));
}

TEST_CASE("Messages of a session that is unknown, or has no GPU yet, change nothing and are not answered") {
  Bench b;
  b.settle_in(2, 2, 10);
  b.come(1, 1);
  const std::uint64_t id = GENERATE(1, 77);
  const Snapshot::Session before = b.session(1);
  const auto say = [&](const auto& body) {
    b.say(id, body);
    CHECK(std::none_of(b.last.begin(), b.last.end(),
                       [](const Action& action) { return std::holds_alternative<Send>(action); }));
  };
  say(Usage{.request = 1, .use = Bench::use(10, 10), .stuck = 0});
  say(Idle{.epoch = b.epoch(1), .idle = 1s});
  say(GiveBack{.epoch = b.epoch(1)});
  say(Ready{.epoch = b.epoch(1), .use = Bench::use(10, 10)});
  say(Released{.epoch = b.epoch(1), .order = 0, .wants = 1, .overuse = {}, .use = Bench::use(10, 10)});
  say(MemoryQuery{.request = 9});
  say(Deadlines{.met = 1, .missed = 1});
  CHECK(b.session(1).use.swappable == before.use.swappable);
  CHECK(b.session(1).requests == 0);
  b.handle(Looked{.session = SessionId{id}, .stopped = true});
  CHECK_FALSE(b.session(1).frozen);
  b.handle(SessionGone{.session = SessionId{77}});
  b.handle(Suspend{.tenant = TenantId{77}, .suspended = true});
  CHECK(b.open(2));
}

// ---- several processes, GPUs and tenants ----

// Sessions 1 and 4 of one tenant are on different GPUs. Session 2 of another tenant waits for the GPU of
// session 1.
Bench one_on_two() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.come(4, 1);
  b.attach(4, kOther);
  b.queue_up(2, 2, 60);
  REQUIRE(b.told[4].page.contended);
  return b;
}

TEST_CASE("A tenant is idle when all of its processes are") {
  Bench b = one_on_two();
  b.pass(1s);
  const std::uint64_t first = GENERATE(1, 4);
  b.say(first, Idle{.epoch = b.epoch(first), .idle = 1s});
  CHECK(b.open(first));
  const std::uint64_t other = 5 - first;
  b.say(other, Idle{.epoch = b.epoch(other), .idle = 1s});
  CHECK_FALSE(b.open(1));
  CHECK_FALSE(b.open(4));
}

TEST_CASE("The sessions on all GPUs of a domain are polled, and one stopped session counts for its tenant") {
  Bench b = one_on_two();
  for (std::uint64_t id : {1, 4}) {
    b.pass(500ms);
    CHECK(b.looked_at(id));
  }
  b.handle(Looked{.session = SessionId{4}, .stopped = true});
  CHECK(b.tenant(1).frozen);
  CHECK(b.open(1));  // the tenant's other process is not stopped
}

TEST_CASE("All leases to which no session reconnects end with the recovery") {
  Recovered recovered = Recovering::with_lease();
  const LeaseKey key{.tenant = TenantId{2}, .gpu = kOther, .step = {.job = 2, .step = 0}};
  recovered.leases.grant(key, Epoch{6}, 980s);
  Bench b(std::move(recovered));
  b.pass(2s);
  for (std::uint64_t id : {1, 2}) CHECK_FALSE(b.holds(id));
  CHECK(b.core->snapshot().tenants.empty());
}

TEST_CASE("A tenant on two GPUs restores on both before either gate opens") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(2, 2, 0);
  b.come(3, 2);
  b.attach(3, kOther);
  b.grow(3, 60, 0);
  b.tell(3, 60, 60);
  b.grow(2, 60, 0);
  REQUIRE(b.sent<Revoke>(2));
  REQUIRE(b.sent<Revoke>(3));
  b.release(2, 0, true);
  CHECK(b.holds(2));
  b.release(3, 60, true);
  CHECK_FALSE(b.holds(2));
  b.pass(10s);
  REQUIRE(b.sent<Revoke>(1));
  b.release(1, 60, true);
  CHECK_FALSE(b.sent<Evict>(3));  // the tenant lacks memory on the other GPU
  REQUIRE(b.sent<Evict>(1));
  b.tell(1, 60, 40);
  b.ready(3, 60);
  CHECK_FALSE(b.open(3));
  b.ready(2, 60);
  CHECK(b.open(2));
  CHECK(b.open(3));
}

}  // namespace
}  // namespace sharedgpu
