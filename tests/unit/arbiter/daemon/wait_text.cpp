// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/wait_text.h"

#include <catch2/catch.hpp>

#include "tests/unit/arbiter/core/bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Job 17 of user 1 has waited since 970 s. Run 2 of user 2 holds the lease. A third tenant waits, too.
struct WaitScene {
  Bench bench;
  Tenants tenants;
  Snapshot state;
  std::optional<uid_t> viewer;
  Nanoseconds now = 1000s;
  std::vector<TenantId> queue{TenantId{1}};

  WaitScene() {
    TenantName name;
    name.job = 17;
    tenants.get(name, 1).sessions = 1;
    name.job = 0;
    name.run.bytes[0] = 1;
    tenants.get(name, 2).sessions = 1;
    name.run.bytes[0] = 2;
    tenants.get(name, 3).sessions = 1;
    bench.settle_in(2, 2, 10);
    REQUIRE(bench.core->leases().holds(TenantId{2}));
    Snapshot::Gpu& gpu = state.gpus.emplace_back();
    gpu.uuid = kGpu;
    gpu.number = 3;
    gpu.turn.length = 20s;
    for (std::uint64_t id = 1; id <= 3; ++id) {
      Snapshot::Session& session = state.sessions.emplace_back();
      session.id = {id};
      session.tenant = TenantId{id};
      session.gpu = kGpu;
      session.wants = id != 2;
      gpu.sessions.push_back({id});
      Snapshot::Tenant& tenant = state.tenants.emplace_back();
      tenant.id = TenantId{id};
      tenant.sessions = {{id}};
      tenant.wants = id != 2;
    }
    state.tenants[0].waiting_since = 970s;
    state.tenants[1].turn_began = 992s;
  }
  std::string text() {
    return describe_wait(
        {.state = state,
         .tenants = tenants,
         .leases = bench.core->leases(),
         .viewer = viewer,
         .now = now,
         .queue = [this](const GpuUuid& gpu) { return gpu == kGpu ? queue : std::vector<TenantId>(); }},
        state.tenants[0]);
  }
};

TEST_CASE("A tenant waits if a thread wants the GPU and the tenant has no lease") {
  WaitScene scene;
  const LeaseBook& leases = scene.bench.core->leases();
  CHECK(wait_of(scene.state.tenants[0], leases, 1000s) == std::optional<Nanoseconds>(30s));
  scene.state.tenants[1].wants = true;
  CHECK_FALSE(wait_of(scene.state.tenants[1], leases, 1000s));  // the tenant holds a lease
  scene.state.tenants[0].absent = true;
  CHECK_FALSE(wait_of(scene.state.tenants[0], leases, 1000s));  // the tenant is stopped
  scene.state.tenants[0].absent = scene.state.tenants[0].wants = false;
  CHECK_FALSE(wait_of(scene.state.tenants[0], leases, 1000s));
}

TEST_CASE("The line about a wait has the holder and the rest of its turn") {
  WaitScene scene;
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of run 2 lasts up to 12 s more");
  scene.state.tenants[1].turn_began = 970s;
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of run 2 is ending");
  scene.state.tenants[1].overdue = Overdue{.gpu = kGpu, .since = 985s};
  CHECK(scene.text() ==
        "this job has waited 30 s for GPU 3: run 2 has kept it for 15 s since its turn ended");
}

TEST_CASE("The line about a wait has the place in the queue, whoever the others are") {
  WaitScene scene;
  scene.viewer = 1;
  const std::string start =
      "this job has waited 30 s for GPU 3: the turn of another job lasts up to 12 s more";
  scene.queue = {TenantId{1}, TenantId{3}};
  CHECK(scene.text() == start + "; it is next in the queue");
  scene.queue = {TenantId{3}, TenantId{1}};
  CHECK(scene.text() ==
        start + "; it is number 2 of 2 in the queue, so about 1 turn of 20 s comes before its own");
  scene.queue = {TenantId{3}, TenantId{4}, TenantId{1}, TenantId{5}};
  CHECK(scene.text() ==
        start + "; it is number 3 of 4 in the queue, so about 2 turns of 20 s come before its own");
  scene.queue = {TenantId{3}, TenantId{4}};  // the arbiter has just started
  CHECK(scene.text() == start);
}

TEST_CASE("The longest line about a wait fits into a notice") {
  WaitScene scene;
  scene.tenants.find(TenantId{2})->element = {.array = UINT32_MAX, .index = UINT32_MAX};
  scene.now = scene.state.tenants[0].waiting_since + std::chrono::hours(24 * 365);
  scene.state.tenants[1].overdue = Overdue{.gpu = kGpu, .since = 0s};
  scene.state.gpus[0].turn.length = std::chrono::hours(24 * 365);
  scene.state.gpus[0].number = UINT32_MAX;
  scene.queue.assign(10'000, TenantId{3});
  scene.queue.push_back(TenantId{1});
  CHECK(scene.text().size() < sizeof Notice::text);
}

TEST_CASE("The line about a wait names only jobs that its user may see, as users know them") {
  WaitScene scene;
  scene.state.tenants[2].wants = false;
  scene.viewer = 1;
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of another job lasts up to 12 s more");
  scene.tenants.find(TenantId{2})->account = 1;  // tenant 2 is in a rootless container of user 1
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of run 2 lasts up to 12 s more");
  scene.tenants.find(TenantId{2})->account = 2;
  scene.viewer = 2;
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of run 2 lasts up to 12 s more");
  scene.viewer.reset();
  scene.tenants.find(TenantId{2})->element = {.array = 21, .index = 1};
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: the turn of job 21_1 lasts up to 12 s more");
}

TEST_CASE("Without a holder, the line about a wait says what is missing") {
  WaitScene scene;
  scene.state.tenants.erase(scene.state.tenants.begin() + 1);
  scene.state.gpus[0].sessions = {{1}};
  scene.state.tenants[0].phase = Phase::entering;
  CHECK(scene.text() ==
        "this job has waited 30 s for GPU 3: its turn begins when its memory is back on the GPU");
  scene.state.tenants[0].phase = Phase::out;
  CHECK(scene.text() == "this job has waited 30 s for GPU 3: its turn has not begun yet");
  scene.tenants.find(TenantId{1})->nodes = 2;
  CHECK(scene.text() ==
        "this job has waited 30 s for GPU 3: its turn begins when the GPUs on its other nodes are free, too");
  scene.state.sessions[0].gpu.reset();
  CHECK(scene.text() == "this job has waited 30 s for its GPU");
}

}  // namespace
}  // namespace sharedgpu
