// SPDX-License-Identifier: Apache-2.0
// The core with the policy `deadline`: how deadlines limit other tenants, and when the limits end.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Three tenants on a GPU that has room for all. Tenant 1 has deadlines of 100 ms and priority 2; tenants 2
// and 3 have lower priorities.
struct World : Bench {
  explicit World(const char* name = "deadline", bool by_threads = false) {
    next = make_policy(name);
    handle(RulesSet{.node = {.policy = next.get(), .by_threads = by_threads}});
    for (std::uint64_t id : {1, 2, 3}) {
      handle(SessionCame{.session = SessionId{id},
                         .tenant = TenantId{id},
                         .step = {.job = static_cast<std::uint32_t>(id), .step = 0},
                         .cap = {},
                         .claims = claims(id),
                         .expected = false,
                         .hello = {}});
      attach(id);
      grow(id, 10, 0);
    }
    have_turn(1);
  }
  // Lets time pass until the session holds the lease. The other sessions obey the core.
  void have_turn(std::uint64_t id) {
    want(id);
    for (int i = 0; i < 100 && !open(id); ++i) {
      for (const Snapshot::Session& its : core->snapshot().sessions)
        if (tenant(its.tenant.value).phase == Phase::leaving && !its.drained) release(its.id.value, 10, true);
      if (tenant(id).phase == Phase::entering) ready(id, 10);
      if (!open(id)) pass(100ms);
    }
    if (!open(id)) throw std::logic_error("it never has its turn");
  }
  static Claims claims(std::uint64_t id) {
    if (id == 1) return {.priority = 2, .request = 0.1, .deadline = 100ms};
    return {.priority = id == 2 ? 1 : 0, .request = id == 2 ? 0.2 : 0};
  }
  void tell_of(std::uint64_t id, std::uint64_t met, std::uint64_t missed) {
    say(id, Deadlines{.met = met, .missed = missed});
  }
  double part(std::uint64_t id) const { return tenant(id).claims.limit; }
  // Returns the part of the GPU's threads that a process gets if it starts now.
  double threads(const Claims& claims) const { return Core::threads_on(gpu(), claims); }

  std::unique_ptr<Policy> next;
};

TEST_CASE("A missed deadline halves the limit of lower priorities, and a met deadline adds a hundredth") {
  World world;
  world.tell_of(1, 0, 1);
  CHECK(world.part(1) == 1);
  CHECK(world.part(2) == 0.5);
  CHECK(world.part(3) == 0.5);
  world.tell_of(1, 3, 0);
  CHECK(world.part(3) == Approx(0.53));
  world.tell_of(1, 0, 1);
  CHECK(world.part(3) == Approx(0.265));
  CHECK(world.tenant(1).deadlines.met == 3);
  CHECK(world.tenant(1).deadlines.missed == 2);
}

TEST_CASE("No limit is below the tenant's request or a twentieth, or above the tenant's stated limit") {
  World world;
  world.tell_of(1, 0, 1'000'000);
  CHECK(world.part(2) == 0.2);
  CHECK(world.part(3) == 0.05);
  world.tell_of(1, 1'000'000, 0);
  CHECK(world.part(2) == 1);
  CHECK(world.tenant(3).claims == World::claims(3));
}

TEST_CASE("Only tenants of a lower priority are limited, and only by tenants with deadlines") {
  World world;
  world.tell_of(2, 0, 1);
  CHECK(world.part(3) == 1);
  CHECK(world.tenant(2).deadlines.missed == 0);
  Claims also = World::claims(3);
  also.deadline = 10ms;
  world.handle(CapSet{.tenant = TenantId{3}, .cap = {}, .claims = also});
  world.tell_of(3, 0, 1);
  CHECK(world.part(1) == 1);
  CHECK(world.part(2) == 1);
  CHECK(world.tenant(3).deadlines.missed == 1);
}

TEST_CASE("If deadlines limit threads, all tenants keep all of their time") {
  World world;
  world.tell_of(1, 0, 10);
  REQUIRE(world.part(3) == 0.05);
  world.handle(RulesSet{.node = {.policy = world.next.get(), .by_threads = true}});
  CHECK(world.part(2) == 1);
  CHECK(world.part(3) == 1);
  world.tell_of(1, 0, 1);
  CHECK(world.part(3) == 1);
}

TEST_CASE("When deadlines no longer limit a tenant that is alone, its GPU is not oversubscribed") {
  World world;
  Claims timed = World::claims(3);
  timed.timed = true;
  world.handle(CapSet{.tenant = TenantId{3}, .cap = {}, .claims = timed});
  world.handle(SessionGone{.session = SessionId{2}});
  world.tell_of(1, 0, 10);
  REQUIRE(world.part(3) == 0.05);
  CHECK(world.session(3).oversubscribed);
  world.handle(SessionGone{.session = SessionId{1}});
  world.pass_by_timers(100s);
  CHECK(world.part(3) == 1);
  CHECK_FALSE(world.session(3).oversubscribed);
}

TEST_CASE("A tenant that has reported nothing for 10 s, or for three deadlines, limits no other tenant") {
  World world;
  world.tell_of(1, 0, 1);
  world.pass(9999ms);
  CHECK(world.part(3) == 0.5);
  world.pass_to_timer();
  CHECK(world.part(3) == 1);
  CHECK(world.tenant(2).claims == World::claims(2));

  Claims slow = World::claims(1);
  slow.deadline = 20s;
  world.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = slow});
  world.tell_of(1, 0, 1);
  world.pass(59s);
  CHECK(world.part(3) == 0.5);
  world.pass(1s);
  CHECK(world.part(3) == 1);

  slow.deadline = 24h;
  world.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = slow});
  world.tell_of(1, 0, 1);
  world.pass(59s);
  CHECK(world.part(3) == 0.5);
  world.pass(1s);
  CHECK(world.part(3) == 1);
}

TEST_CASE("A tenant that reports and has not had the GPU since its last report limits no other tenant") {
  World world;
  world.tell_of(1, 0, 1);
  REQUIRE(world.part(3) == 0.5);
  world.have_turn(3);
  world.tell_of(1, 0, 1);  // tenant 1 reports a deadline of its earlier work
  CHECK(world.part(3) < 1);
  for (int i = 0; i < 6; ++i) {
    world.pass(2s);
    world.tell_of(1, 0, 1);
  }
  CHECK(world.part(3) == 1);
  CHECK(world.tenant(1).deadlines.missed == 8);
}

TEST_CASE("A tenant that reports and has never had the GPU limits no other tenant") {
  World world;
  Claims urgent = World::claims(1);
  urgent.priority = 3;
  world.handle(SessionCame{.session = SessionId{4},
                           .tenant = TenantId{4},
                           .step = {.job = 4, .step = 0},
                           .cap = {},
                           .claims = urgent,
                           .expected = false,
                           .hello = {}});
  world.attach(4);
  REQUIRE_FALSE(world.core->leases().holds(TenantId{4}));
  world.tell_of(4, 0, 1);
  CHECK(world.part(1) == 1);
  CHECK(world.part(3) == 1);
  CHECK(world.tenant(4).deadlines.missed == 1);
}

TEST_CASE("The limits end with the tenant that caused them, with its priority, and with the policy") {
  World world;
  world.tell_of(1, 0, 1);
  REQUIRE(world.part(3) == 0.5);
  SECTION("it ends") { world.handle(SessionGone{.session = SessionId{1}}); }
  SECTION("it has no priority any more") {
    Claims low = World::claims(1);
    low.priority = 0;
    world.handle(CapSet{.tenant = TenantId{1}, .cap = {}, .claims = low});
  }
  SECTION("another policy") {
    const auto other = make_policy("elastic");
    world.handle(RulesSet{.node = {.policy = other.get()}});
    CHECK(world.part(3) == 1);
    world.tell_of(1, 0, 1);
    CHECK(world.part(3) == 1);
    CHECK(world.tenant(1).deadlines.missed == 2);
    world.handle(RulesSet{.node = {.policy = world.next.get()}});
  }
  CHECK(world.part(3) == 1);
}

TEST_CASE("New Claims of a job apply at once, reduced by the limits that deadlines set") {
  World world;
  world.tell_of(1, 0, 2);
  REQUIRE(world.part(3) == 0.25);
  world.handle(CapSet{.tenant = TenantId{3}, .cap = {}, .claims = {.request = 0.4, .limit = 0.6}});
  CHECK(world.part(3) == 0.4);
  world.tell_of(1, 100, 0);
  CHECK(world.part(3) == 0.6);
}

TEST_CASE("A tenant with deadlines has the GPU for itself") {
  World world;
  world.tell_of(1, 0, 1);
  world.say(2, Want{});
  CHECK(world.open(1));
  CHECK_FALSE(world.open(2));
  CHECK_FALSE(world.open(3));
  // Under another policy, a tenant with deadlines shares the GPU with others.
  World other("elastic");
  for (std::uint64_t id : {1, 2, 3}) CHECK(other.open(id));
}

TEST_CASE("Beside a tenant with deadlines the others have the GPU one at a time, until that tenant ends") {
  World world;
  world.have_turn(2);
  CHECK_FALSE(world.open(1));
  CHECK_FALSE(world.open(3));
  world.handle(SessionGone{.session = SessionId{1}});
  for (std::uint64_t id : {2, 3}) {
    world.have_turn(id);
    CHECK_FALSE(world.tenant(id).exclusive);
  }
  CHECK(world.open(2));
}

TEST_CASE("Beside a tenant with deadlines queues are a quarter of the shortest deadline, until it ends") {
  World world;
  auto queues = [&] {
    CHECK(world.session(1).oversubscribed);
    CHECK(world.session(2).queue == world.session(1).queue);
    CHECK(world.session(3).queue == world.session(1).queue);
    return world.session(3).queue;
  };
  CHECK(queues() == 20ms);
  Claims second = World::claims(2);
  second.deadline = 40ms;
  world.handle(CapSet{.tenant = TenantId{2}, .cap = {}, .claims = second});
  CHECK(queues() == 10ms);
  world.handle(SessionGone{.session = SessionId{2}});
  CHECK(world.session(3).queue == 20ms);
  world.handle(SessionGone{.session = SessionId{1}});
  CHECK_FALSE(world.session(3).oversubscribed);
  CHECK(world.session(3).queue == 0ms);
}

TEST_CASE("By threads: no queue is shortened") {
  World world("deadline", true);
  world.grow(2, 60, 0);
  world.grow(3, 60, 0);
  CHECK(world.session(3).oversubscribed);
  CHECK(world.session(3).queue == 0ms);
}

TEST_CASE("By threads: misses leave fewer threads to later starts of lower priority, but no less time") {
  World world("deadline", true);
  CHECK(world.threads(World::claims(3)) == 1);
  world.tell_of(1, 0, 1);
  CHECK(world.threads(World::claims(3)) == 0.5);
  CHECK(world.threads(World::claims(1)) == 1);
  CHECK(world.threads({.request = 0.8}) == 0.8);
  CHECK(world.threads({.limit = 0.3}) == 0.3);
  for (std::uint64_t id : {1, 2, 3}) CHECK(world.part(id) == 1);
  for (std::uint64_t id : {2, 3}) world.want(id);
  for (std::uint64_t id : {1, 2, 3}) CHECK(world.open(id));
  world.tell_of(1, 1, 0);
  CHECK(world.threads(World::claims(3)) == Approx(0.51));
  world.tell_of(1, 0, 100);
  CHECK(world.threads(World::claims(3)) == 0.05);
  world.handle(SessionGone{.session = SessionId{1}});
  CHECK(world.threads(World::claims(3)) == 1);
}

TEST_CASE("By threads: misses limit tenants of a lower priority on each GPU of the domain") {
  World world("deadline", true);
  world.handle(SessionCame{.session = SessionId{4},
                           .tenant = TenantId{1},
                           .step = {.job = 1, .step = 0},
                           .cap = {},
                           .claims = World::claims(1),
                           .expected = false,
                           .hello = {}});
  world.attach(4, kOther);
  world.grow(4, 10, 0);
  world.tell_of(1, 0, 1);
  for (const GpuUuid& gpu : {kGpu, kOther}) CHECK(Core::threads_on(world.gpu(gpu), World::claims(3)) == 0.5);
}

TEST_CASE("By threads: of two tenants with deadlines, the tenant with the higher priority limits the other") {
  World world("deadline", true);
  Claims second = World::claims(2);
  second.deadline = 100ms;
  world.handle(CapSet{.tenant = TenantId{2}, .cap = {}, .claims = second});
  world.want(2);
  world.tell_of(2, 0, 1);
  CHECK(world.threads(World::claims(3)) == 0.5);
  CHECK(world.threads(second) == 1);
  world.tell_of(1, 0, 1);
  CHECK(world.threads(second) == 0.25);
  world.tell_of(2, 0, 1);
  CHECK(world.threads(World::claims(3)) == 0.25);
  world.handle(SessionGone{.session = SessionId{1}});
  CHECK(world.threads(second) == 1);
}

TEST_CASE("The share of tenants of a lower priority follows their limits, down and up again") {
  World world;
  world.want(2);
  world.want(3);
  const double before = world.tenant(3).due;
  world.tell_of(1, 0, 100);
  CHECK(world.tenant(3).due == Approx(0.05));
  CHECK(world.tenant(3).due < before);
  world.pass(10s);
  CHECK(world.tenant(3).due == Approx(before));
}

TEST_CASE("A tenant on another GPU is not limited") {
  World world;
  world.handle(SessionCame{.session = SessionId{4},
                           .tenant = TenantId{4},
                           .step = {.job = 4, .step = 0},
                           .cap = {},
                           .claims = {},
                           .expected = false,
                           .hello = {}});
  world.tell_of(1, 0, 1);
  CHECK(world.part(4) == 1);  // tenant 4 has no GPU yet
  world.attach(4, kOther);
  world.tell_of(1, 0, 1);
  CHECK(world.part(4) == 1);
  CHECK(world.part(3) == 0.25);
}

}  // namespace
}  // namespace sharedgpu
