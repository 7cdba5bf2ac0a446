// SPDX-License-Identifier: Apache-2.0
// Tenants that report device memory that NVML does not show: the log and the status name them if the amount
// is large enough.
#include "arbiter/daemon/device_claims.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

constexpr GpuUuid kSecondGpu{{2}};

// A tenant with sessions on GPUs of 80 MiB, in a snapshot that the test fills.
struct ClaimScene {
  Host host;
  Tenants tenants;
  Snapshot state;
  TenantInfo& job;
  std::optional<DeviceClaims> claims;

  ClaimScene() : job(tenants.get(TenantName{.job = 17, .run = {}, .process = {}}, 1000)) {
    host.start();  // the test needs the host's log
    job.account = 1000;
    claims.emplace(tenants, host.arbiter->complaints());
    for (const GpuUuid& uuid : {kHostGpu, kSecondGpu}) {
      Snapshot::Gpu& gpu = state.gpus.emplace_back();
      gpu.uuid = uuid;
      gpu.number = uuid == kHostGpu ? 0 : 1;
      gpu.total = mebibytes(80);
    }
    add(1, kHostGpu);
    host.new_log_lines();
  }
  Snapshot::Session& add(std::uint64_t id, const GpuUuid& gpu) {
    Snapshot::Session& session = state.sessions.emplace_back();
    session.id = {id};
    session.tenant = job.id;
    session.gpu = gpu;
    return session;
  }
  // Sets the evidence of a session: three surveys have shown none of its evictable and pinned memory (in
  // MiB).
  static void lack(Snapshot::Session& session, unsigned evictable, unsigned pinned = 0) {
    session.evidence = {};
    const Bytes all = mebibytes(evictable + pinned);
    for (int i = 0; i < 3; ++i)
      session.evidence.show(
          {}, {.unevictable = {}, .present = all, .evictable = mebibytes(evictable), .all = all}, {});
    session.disproved = mebibytes(evictable);
  }
  void look(int times) {
    for (int i = 0; i < times; ++i) claims->look(state);
  }
  DeviceClaims::Excess excess() const { return claims->of(job.id); }
};

constexpr DeviceClaims::Excess kNone{};

TEST_CASE("An amount recurs if ten of sixty observations reach it") {
  Recurring recurring;
  for (int i = 0; i < 9; ++i) recurring.add(Bytes{100});
  CHECK(recurring.amount() == Bytes{});
  recurring.add(Bytes{70});
  CHECK(recurring.amount() == Bytes{70});
  recurring.add(Bytes{80});
  CHECK(recurring.amount() == Bytes{80});
  for (int i = 0; i < 49; ++i) recurring.add({});
  CHECK(recurring.amount() == Bytes{80});
  for (int i = 0; i < 2; ++i) recurring.add({});
  CHECK(recurring.amount() == Bytes{});
}

TEST_CASE("A tenant that keeps reporting evictable memory that NVML does not show is named once") {
  ClaimScene scene;
  ClaimScene::lack(scene.state.sessions[0], 20);
  scene.look(9);
  CHECK(scene.excess() == kNone);
  CHECK(scene.host.new_log_lines().empty());
  scene.look(1);
  CHECK(scene.excess() == DeviceClaims::Excess{.unseen = mebibytes(20), .disproved = mebibytes(20)});
  const std::vector<std::string> said = {
      "warning: job 17, uid 1000: reports 20 MiB on GPU 0 that NVML does not show; the arbiter counts what "
      "NVML "
      "shows"};
  CHECK(scene.host.new_log_lines() == said);
  SECTION("and shown for a while") {
    ClaimScene::lack(scene.state.sessions[0], 0);
    scene.look(50);
    CHECK(scene.excess() != kNone);
    scene.look(10);
    CHECK(scene.excess() == kNone);
  }
  SECTION("as long as it has sessions") {
    scene.state.sessions.clear();
    scene.look(1);
    CHECK(scene.excess() == kNone);
  }
  CHECK(scene.host.new_log_lines().empty());
}

TEST_CASE("A tenant that alternates is named, too") {
  ClaimScene scene;
  for (int i = 0; i < 10; ++i) {
    ClaimScene::lack(scene.state.sessions[0], 20);
    scene.look(1);
    ClaimScene::lack(scene.state.sessions[0], 0);
    scene.look(4);
  }
  CHECK(scene.excess().disproved == mebibytes(20));
}

TEST_CASE("The reports of all processes of a tenant on a GPU count together") {
  ClaimScene scene;
  scene.add(2, kHostGpu);
  for (Snapshot::Session& session : scene.state.sessions) ClaimScene::lack(session, 6);
  scene.look(10);
  CHECK(scene.excess().disproved == mebibytes(12));
}

TEST_CASE("A tenant is not named") {
  ClaimScene scene;
  SECTION("for up to an eighth of a GPU") {
    ClaimScene::lack(scene.state.sessions[0], 10);
    ClaimScene::lack(scene.add(2, kSecondGpu), 10);
  }
  SECTION("for memory that a stopped process cannot report as gone") {
    ClaimScene::lack(scene.state.sessions[0], 60);
    scene.state.sessions[0].frozen = true;
  }
  SECTION("for managed memory") {
    ClaimScene::lack(scene.state.sessions[0], 60);
    scene.state.sessions[0].backend = Backend::managed;
  }
  scene.look(60);
  CHECK(scene.excess() == kNone);
  CHECK(scene.host.new_log_lines().empty());
}

TEST_CASE("For pinned memory that NVML does not show there is no warning, since it may exist") {
  ClaimScene scene;
  ClaimScene::lack(scene.state.sessions[0], 0, 40);
  scene.look(60);
  CHECK(scene.excess() == DeviceClaims::Excess{.unseen = mebibytes(40), .disproved = {}});
  CHECK(scene.host.new_log_lines().empty());
}

}  // namespace
}  // namespace sharedgpu::test
