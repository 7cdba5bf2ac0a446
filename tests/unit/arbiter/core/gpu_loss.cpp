// SPDX-License-Identifier: Apache-2.0
// GPUs that fail, are lost, return and are drained: which tenants leave, continue and enter.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Gpus = std::vector<GpuUuid>;

void change(Bench& b, GpuCondition condition, const GpuUuid& gpu = kGpu) {
  b.handle(GpuChanged{.gpu = gpu, .condition = condition});
}

std::vector<std::uint64_t> dropped(const Bench& b) {
  std::vector<std::uint64_t> ids;
  for (const Action& action : b.last)
    if (const auto* drop = std::get_if<Drop>(&action)) ids.push_back(drop->session.value);
  return ids;
}

Gpus place(Bench& b, std::uint64_t tenant, unsigned gpus = 1) {
  b.handle(Place{.tenant = TenantId{tenant}, .demand = {.gpus = gpus}});
  const auto placements = b.core->snapshot().placements;
  const auto found = placements.find(TenantId{tenant});
  return found == placements.end() ? Gpus{} : found->second.gpus;
}

TEST_CASE("A GPU that is lost drops its sessions, and their leases end then") {
  Bench b;
  b.settle_in(1, 1, 20);
  b.settle_in(2, 2, 20);
  b.come(3, 3);
  b.attach(3, kOther);
  b.now += 5s;
  change(b, GpuCondition::lost);
  CHECK(dropped(b) == std::vector<std::uint64_t>{1, 2});
  CHECK(!b.holds(1));
  CHECK(!b.holds(2));
  CHECK(b.holds(3));
  CHECK(b.open(3));
  CHECK(b.written.of_tenant(TenantId{1}, b.now + 10s) == 5s);
  CHECK(b.gpu().sessions.empty());
  CHECK(b.gpu().promised == Bytes{});
  // Later messages of these sessions belong to no session.
  b.tell(1, 20, 20);
  b.handle(SessionGone{.session = SessionId{1}});
  CHECK(b.last.empty());
}

TEST_CASE("No tenant waits for a GPU after its loss") {
  Bench b;
  b.settle_in(1, 1, 80);
  b.queue_up(2, 2, 80);
  REQUIRE(b.tenant(2).phase == Phase::out);
  change(b, GpuCondition::lost);
  CHECK(dropped(b) == std::vector<std::uint64_t>{1, 2});
  CHECK(b.core->snapshot().tenants.empty());
}

// The first tenant uses both GPUs. The first tenant has to leave because the second tenant waits. But the
// first tenant's session on the lost GPU never answers.
TEST_CASE("Tenants of other GPUs of the domain notice nothing of a loss") {
  Bench b;
  b.settle_in(1, 1, 10);
  b.come(2, 1);
  b.attach(2, kOther);
  b.grow(2, 80, 0);
  b.tell(2, 80, 80);
  b.queue_up(3, 2, 80 + 1);
  REQUIRE(b.session(3).gpu == kGpu);
  b.come(4, 3);
  b.attach(4, kOther);
  b.grow(4, 80, 0);
  b.release(4, 0, true);
  b.want(4);
  b.pass(11s);
  REQUIRE(b.tenant(1).phase == Phase::leaving);
  b.release(2, 80, true);
  REQUIRE(b.tenant(1).phase ==
          Phase::leaving);  // session 1, on the GPU that is about to be lost, still works
  change(b, GpuCondition::lost);
  CHECK(b.tenant(1).phase != Phase::leaving);
  CHECK(b.tenant(1).sessions == std::vector<SessionId>{SessionId{2}});
  CHECK(b.sent<Evict>(2));
  b.tell(2, 80, 0);
  CHECK(b.sent<Restore>(4));
  b.ready(4, 80);
  CHECK(b.open(4));
}

TEST_CASE("No session attaches to a lost GPU until the GPU returns") {
  Bench b;
  change(b, GpuCondition::lost);
  b.come(1, 1);
  b.attach(1);
  CHECK(dropped(b) == std::vector<std::uint64_t>{1});
  CHECK(!b.session(1).gpu);
  b.handle(SessionGone{.session = SessionId{1}});
  CHECK(place(b, 2) == Gpus{kOther});
  CHECK(place(b, 3) == Gpus{kOther});
  change(b, GpuCondition::healthy);
  CHECK(place(b, 4) == Gpus{kGpu});
  b.settle_in(5, 4, 10);
  CHECK(b.open(5));
}

TEST_CASE("A tenant on a failing GPU continues, and its next processes are placed elsewhere") {
  Bench b;
  CHECK(place(b, 1) == Gpus{kGpu});
  b.settle_in(1, 1, 10);
  change(b, GpuCondition::failing);
  CHECK(dropped(b).empty());
  CHECK(b.open(1));
  CHECK(place(b, 2) == Gpus{kOther});
  CHECK(place(b, 1) == Gpus{kOther});
}

TEST_CASE("A tenant that is placed on a drained GPU stays there, and no other tenant is placed there") {
  Bench b;
  CHECK(place(b, 1) == Gpus{kGpu});
  b.settle_in(1, 1, 10);
  b.handle(GpuDrained{.gpu = kGpu, .drained = true});
  CHECK(b.open(1));
  CHECK(place(b, 2) == Gpus{kOther});
  CHECK(place(b, 3) == Gpus{kOther});
  CHECK(place(b, 4, 2) == Gpus{kOther});
  CHECK(place(b, 1) == Gpus{kGpu});
  const Snapshot state = b.core->snapshot();
  CHECK(gpus_seen(state, state.placements.at(TenantId{1}), {}) == Gpus{kGpu});
  b.handle(GpuDrained{.gpu = kGpu, .drained = false});
  CHECK(place(b, 5) == Gpus{kGpu});
}

TEST_CASE("If all GPUs are drained or have failed, a tenant is placed on none") {
  Bench b;
  place(b, 1);
  b.handle(GpuDrained{.gpu = kOther, .drained = true});
  change(b, GpuCondition::lost);
  CHECK(place(b, 2).empty());
  place(b, 1);
  const Snapshot state = b.core->snapshot();
  CHECK(gpus_seen(state, state.placements.at(TenantId{1}), {}).empty());
}

TEST_CASE("A GPU that only sessions know is not lost because of a report") {
  Bench b;
  constexpr GpuUuid kLearned{{9}};
  b.handle(GpuFound{.gpu = kLearned, .total = mebibytes(120), .capacity = mebibytes(100), .learned = true});
  b.come(1, 1);
  b.attach(1, kLearned);
  change(b, GpuCondition::lost, kLearned);
  CHECK(dropped(b).empty());
  CHECK(b.open(1));
}

TEST_CASE("A GPU that is lost while the arbiter waits for sessions of its predecessor") {
  Recovered recovered;
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 1, .step = 0}};
  recovered.leases.grant(key, Epoch{7}, 990s);
  recovered.last_record = 999s;
  recovered.expected_sessions = 2;
  Bench b(recovered);
  Hello hello;
  hello.resuming = hello.held = 1;
  hello.epoch = Epoch{7};
  b.come(1, 1, hello);
  b.attach(1);
  b.now += 1s;
  change(b, GpuCondition::lost);
  b.pass(3s);
  CHECK(!b.holds(1));
  CHECK(b.written.of_tenant(TenantId{1}, b.now) == 11s);
  CHECK(b.core->snapshot().tenants.empty());
}

}  // namespace
}  // namespace sharedgpu
