// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/lease_table.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kGpu{{1}};
constexpr Nanoseconds kBooted = 1700000000s;

struct Read {
  LeaseTable table;

  explicit Read(const char* boot = "one") { starts(boot, 0s); }
  void starts(const char* boot, Nanoseconds at, Nanoseconds booted = kBooted) {
    table.add({.at = at, .what = BootRecord{.boot_id = boot, .booted = booted}});
  }
  void job(std::uint64_t tenant, std::uint32_t number) {
    TenantName name;
    name.job = number;
    table.add({.at = {}, .what = TenantRecord{.tenant = TenantId{tenant}, .name = name, .uid = 1000}});
  }
  void lease(bool grant, Nanoseconds at, std::uint32_t step = 0, std::uint64_t tenant = 1) {
    const LeaseKey key{.tenant = TenantId{tenant}, .gpu = kGpu, .step = {.job = 9, .step = step}};
    table.add({.at = at, .what = LeaseRecord{.grant = grant, .epoch = Epoch{1}, .key = key}});
  }
};

TEST_CASE("A lease is told by the clock on the wall, with who held it") {
  Read read;
  read.job(1, 9);
  read.lease(true, 4s);
  read.lease(false, 9s);
  const auto rows = read.table.leases();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].name.job == 9);
  CHECK(rows[0].uid == 1000);
  CHECK(rows[0].held == 5s);
  CHECK(rows[0].first == kBooted + 4s);
  CHECK(rows[0].last == kBooted + 9s);
  CHECK_FALSE(rows[0].open);
}

TEST_CASE("A number that is given out again stands for the new tenant from there on") {
  Read read;
  read.job(1, 9);
  read.lease(true, 1s);
  read.lease(false, 2s);
  read.job(1, 10);
  read.lease(true, 3s);
  read.lease(false, 5s);
  const auto rows = by_tenant(read.table.leases());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].name.job == 9);
  CHECK(rows[0].held == 1s);
  CHECK(rows[1].name.job == 10);
  CHECK(rows[1].held == 2s);
}

TEST_CASE("What nobody ended was held to the ledger's last record, or to its boot's") {
  Read read;
  read.lease(true, 10s, 0);
  read.lease(true, 12s, 1);
  read.lease(false, 15s, 1);
  SECTION("it is open") {
    const auto rows = read.table.leases();
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].open);
    CHECK(rows[0].held == 5s);
  }
  SECTION("the arbiter starts again: the lease goes on") {
    read.starts("one", 20s);
    CHECK(read.table.leases()[0].open);
    read.lease(false, 21s, 0);
    CHECK(read.table.leases()[0].held == 11s);
  }
  SECTION("the host starts again") {
    read.starts("two", 3s, kBooted + 100s);
    read.lease(true, 4s, 2);
    read.lease(false, 6s, 2);
    const auto rows = read.table.leases();
    REQUIRE(rows.size() == 3);
    CHECK_FALSE(rows[0].open);
    CHECK(rows[0].held == 5s);
    CHECK(rows[2].first == kBooted + 104s);
  }
}

TEST_CASE("Steps side by side are added up each, and count once for their tenant") {
  Read read;
  read.lease(true, 0s, 0);
  read.lease(true, 2s, 1);
  read.lease(false, 4s, 0);
  read.lease(false, 7s, 1);
  read.lease(true, 10s, 0);
  read.lease(false, 11s, 0);
  const auto steps = by_step(read.table.leases());
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].held == 5s);
  CHECK(steps[0].turns == 2);
  CHECK(steps[1].held == 5s);
  const auto tenants = by_tenant(read.table.leases());
  REQUIRE(tenants.size() == 1);
  CHECK(tenants[0].held == 8s);
  CHECK(tenants[0].turns == 2);
  CHECK(tenants[0].first == kBooted);
  CHECK(tenants[0].last == kBooted + 11s);
  CHECK_FALSE(tenants[0].step);
}

TEST_CASE("The runs of a requeued job are told apart") {
  Read read;
  read.job(1, 9);
  read.lease(true, 1s);
  read.lease(false, 3s);
  read.table.add({.at = 5s, .what = BeginRecord{.tenant = TenantId{1}}});
  read.job(1, 9);
  read.lease(true, 6s);
  read.lease(false, 7s);
  for (const auto& rows : {by_step(read.table.leases()), by_tenant(read.table.leases())}) {
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].held == 2s);
    CHECK(rows[1].held == 1s);
  }
}

TEST_CASE("A release that was lost ends the lease where the ledger saw it last") {
  Read read;
  auto add = [&](Nanoseconds at, auto what) { read.table.add({.at = at, .what = what}); };
  read.lease(true, 1s, 0);
  read.lease(true, 4s, 1);
  add(9s, LostRecord{.records = 3});
  SECTION("a checkpoint tells what is still open") {
    add(10s, CheckpointRecord{});
    add(10s, BootRecord{.boot_id = "one", .booted = kBooted});
    read.lease(true, 4s, 1);
    add(10s, CompleteRecord{});
    add(20s, SessionRecord{});
    const auto rows = read.table.leases();
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].held == 3s);
    CHECK_FALSE(rows[0].open);
    CHECK(rows[1].held == 16s);
    CHECK(rows[1].open);
  }
  SECTION("the step's next turn shows that the last one is over") {
    const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 9, .step = 0}};
    add(12s, LeaseRecord{.grant = true, .epoch = Epoch{2}, .key = key});
    read.lease(false, 14s, 0);
    const auto rows = read.table.leases();
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].held == 3s);
    CHECK(rows[2].held == 2s);
  }
  SECTION("a torn checkpoint tells nothing of what it lacks") {
    add(10s, CheckpointRecord{});
    add(20s, SessionRecord{});
    CHECK(read.table.leases()[0].open);
  }
}

TEST_CASE("A window cuts what reaches into it, and two that meet lose nothing") {
  Read read;
  read.lease(true, 0s);
  read.lease(false, 4s);
  read.lease(true, 6s);
  read.lease(false, 10s);
  const auto all = read.table.leases();
  auto sum = [&](Nanoseconds since, Nanoseconds until) {
    Nanoseconds held{};
    for (const LeaseRow& row : within(all, kBooted + since, kBooted + until)) held += row.held;
    return held;
  };
  CHECK(sum(0s, 20s) == 8s);
  CHECK(sum(2s, 8s) == 4s);
  CHECK(sum(4s, 6s) == 0s);
  for (Nanoseconds cut{}; cut <= 12s; cut += 500ms) CHECK(sum(0s, cut) + sum(cut, 20s) == 8s);
}

}  // namespace
}  // namespace sharedgpu
