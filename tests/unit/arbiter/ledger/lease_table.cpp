// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/lease_table.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kTableGpu{{1}};
constexpr Nanoseconds kBooted = 1700000000s;

struct ReadTable {
  LeaseTable table;

  explicit ReadTable(const char* boot = "one") { starts(boot, 0s); }
  void starts(const char* boot, Nanoseconds at, Nanoseconds booted = kBooted) {
    table.add({.at = at, .what = BootRecord{.boot_id = boot, .booted = booted}});
  }
  void job(std::uint64_t tenant, std::uint32_t number) {
    TenantName name;
    name.job = number;
    table.add({.at = {}, .what = TenantRecord{.tenant = TenantId{tenant}, .name = name, .uid = 1000}});
  }
  void lease(bool grant, Nanoseconds at, std::uint32_t step = 0, std::uint64_t tenant = 1) {
    const LeaseKey key{.tenant = TenantId{tenant}, .gpu = kTableGpu, .step = {.job = 9, .step = step}};
    table.add({.at = at, .what = LeaseRecord{.grant = grant, .epoch = Epoch{1}, .key = key}});
  }
};

TEST_CASE("A lease is shown in wall-clock time, with its holder") {
  ReadTable read;
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

TEST_CASE("The rows of an array's element know the element, over a checkpoint and a requeue") {
  ReadTable read;
  read.job(1, 22);
  read.table.add(
      {.at = {},
       .what = ClassRecord{.tenant = TenantId{1}, .job_class = {}, .element = {.array = 21, .index = 1}}});
  read.lease(true, 4s);
  read.lease(false, 5s);
  read.job(1, 22);
  read.lease(true, 6s);
  const auto rows = read.table.leases();
  REQUIRE(rows.size() == 2);
  for (const LeaseRow& row : rows) CHECK(label_of(row.name, row.tenant, row.element) == "job 21_1");
}

TEST_CASE("The highest host memory of a run's group is known after its leases, and belongs to that run") {
  ReadTable read;
  read.job(1, 9);
  read.lease(true, 1s);
  read.lease(false, 2s);
  const auto used = [&](Bytes host) {
    read.table.add(
        {.at = 3s, .what = UsedRecord{.tenant = TenantId{1}, .step = {}, .figures = {.host = host}}});
  };
  used(mebibytes(3));
  used(mebibytes(2));
  read.job(1, 10);
  read.lease(true, 4s);
  const auto rows = by_tenant(read.table.leases());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].host == mebibytes(3));
  CHECK(rows[1].host == Bytes{});
}

TEST_CASE("A reused number stands for the new tenant from its next record on") {
  ReadTable read;
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

TEST_CASE("A lease without an end was held until the last record of the ledger, or of the lease's boot") {
  ReadTable read;
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

TEST_CASE("Concurrent steps count separately, and once for their tenant") {
  ReadTable read;
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

TEST_CASE("The runs of a requeued job are distinguished") {
  ReadTable read;
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

TEST_CASE("In the table, a lease whose release was lost ends with the last record before the loss") {
  ReadTable read;
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
    const LeaseKey key{.tenant = TenantId{1}, .gpu = kTableGpu, .step = {.job = 9, .step = 0}};
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

TEST_CASE("A window cuts leases at its bounds, and two adjacent windows together lose nothing") {
  ReadTable read;
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

TEST_CASE("Each GPU and each tenant has a row of its own") {
  ReadTable read;
  read.job(1, 9);
  read.job(2, 10);
  const GpuUuid other{{2}};
  for (const auto& [tenant, gpu, end] :
       {std::tuple(1u, kTableGpu, 2s), std::tuple(1u, other, 3s), std::tuple(2u, kTableGpu, 4s)})
    for (const bool grant : {true, false})
      read.table.add({.at = grant ? 1s : end,
                      .what = LeaseRecord{.grant = grant,
                                          .epoch = Epoch{1},
                                          .key = {.tenant = TenantId{tenant}, .gpu = gpu, .step = {9, 0}}}});
  const auto check = [&](const std::vector<LeaseRow>& rows) {
    REQUIRE(rows.size() == 3);
    CHECK((rows[0].name.job == 9 && rows[0].gpu == kTableGpu && rows[0].held == 1s));
    CHECK((rows[1].name.job == 9 && rows[1].gpu == other && rows[1].held == 2s));
    CHECK((rows[2].name.job == 10 && rows[2].gpu == kTableGpu && rows[2].held == 3s));
  };
  check(by_step(read.table.leases()));
  const auto tenants = by_tenant(read.table.leases());
  check(tenants);
  for (const LeaseRow& row : tenants) CHECK_FALSE(row.step);
}

TEST_CASE("A sum is open as long as one of its leases is open, and ends with the last of them") {
  ReadTable read;
  read.lease(true, 0s, 0);
  read.lease(true, 1s, 1);
  read.lease(false, 2s, 0);
  read.lease(true, 3s, 0);
  read.table.add({.at = 9s, .what = SeenRecord{}});
  std::vector<LeaseRow> leases = read.table.leases();
  REQUIRE(leases.size() == 3);
  std::reverse(leases.begin(), leases.end());  // the order of the leases does not matter
  const auto steps = by_step(leases);
  REQUIRE(steps.size() == 2);
  for (const LeaseRow& row : steps) {
    CHECK(row.open);
    CHECK(row.last == kBooted + 9s);
    CHECK(row.held == 8s);
  }
  const auto tenants = by_tenant(leases);
  REQUIRE(tenants.size() == 1);
  CHECK(tenants[0].open);
  CHECK(tenants[0].held == 9s);
  CHECK(tenants[0].turns == 1);
}

TEST_CASE("A lease that begins as another one of its tenant ends is a further turn") {
  ReadTable read;
  read.lease(true, 0s, 0);
  read.lease(false, 4s, 0);
  read.lease(true, 4s, 1);
  read.lease(false, 6s, 1);
  const auto tenants = by_tenant(read.table.leases());
  REQUIRE(tenants.size() == 1);
  CHECK(tenants[0].turns == 2);
  CHECK(tenants[0].held == 6s);
}

TEST_CASE("A lease that ended before it began lasted no time") {
  ReadTable read;
  read.lease(true, 5s);
  read.lease(false, 4s);
  const auto rows = read.table.leases();
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].held == 0s);
  CHECK(rows[0].first == kBooted + 5s);
  CHECK(rows[0].last == kBooted + 5s);
}

TEST_CASE("A lease that begins at a window's end is outside, and one that continues is not open in it") {
  ReadTable read;
  read.lease(true, 2s, 0);
  read.lease(false, 4s, 0);
  read.lease(true, 6s, 1);
  read.table.add({.at = 10s, .what = SeenRecord{}});
  const auto all = read.table.leases();
  const auto rows = [&](Nanoseconds since, Nanoseconds until) {
    return within(all, kBooted + since, kBooted + until);
  };
  CHECK(rows(0s, 6s).size() == 1);
  CHECK(rows(0s, 6s + 1ns).size() == 2);
  CHECK(rows(4s, 20s).size() == 2);
  CHECK(rows(4s + 1ns, 20s).size() == 1);
  CHECK(rows(5s, 20s).at(0).open);
  CHECK_FALSE(rows(5s, 10s).at(0).open);
  const LeaseRow cut = rows(7s, 9s).at(0);
  CHECK_FALSE(cut.open);
  CHECK(cut.first == kBooted + 7s);
  CHECK(cut.last == kBooted + 9s);
  CHECK(cut.held == 2s);
}

TEST_CASE("The holder of a number is the last tenant with this number, in its current run") {
  ReadTable read;
  CHECK(read.table.holder(TenantId{1}).name == TenantName{});
  read.job(1, 9);
  for (int run = 0; run < 2; ++run) read.table.add({.at = 1s, .what = BeginRecord{.tenant = TenantId{1}}});
  read.job(1, 9);
  CHECK(read.table.holder(TenantId{1}).name.job == 9);
  CHECK(read.table.holder(TenantId{1}).uid == 1000);
  CHECK(read.table.holder(TenantId{1}).run == 2);
  read.job(1, 10);
  CHECK(read.table.holder(TenantId{1}).run == 0);
}

TEST_CASE("A lease that ended because its GPU was lost has the reason, and so do sums") {
  ReadTable read;
  const auto lose = [&](std::uint64_t tenant) {
    read.table.add(
        {.at = 6s, .what = LossRecord{.tenant = TenantId{tenant}, .gpu = kTableGpu, .fault = "Xid_79"}});
  };
  read.job(1, 9);
  read.job(2, 10);
  read.job(3, 11);
  read.lease(true, 1s);
  read.lease(false, 2s);
  read.lease(true, 3s);
  read.lease(true, 3s, 0, 2);
  read.lease(true, 3s, 0, 3);
  read.lease(false, 5s, 0, 2);  // the loss of the GPU ended the tenant's process before the arbiter noticed
                                // the loss
  lose(1);
  lose(2);
  lose(4);  // tenant 4 never had a lease
  read.lease(false, 6s);
  read.lease(false, 6s, 0, 3);
  read.lease(true, 7s);
  read.lease(false, 8s);
  std::vector<std::string> lost;
  for (const LeaseRow& row : read.table.leases()) lost.push_back(row.lost);
  CHECK(lost == std::vector<std::string>{"", "Xid 79", "Xid 79", "", ""});
  CHECK(by_step(read.table.leases()).at(0).lost == "Xid 79");
  CHECK(within(read.table.leases(), kBooted, kBooted + 5s).at(2).lost.empty());
}

TEST_CASE(
    "A GPU that is lost says nothing of the leases of an earlier run, nor does what a checkpoint repeats") {
  ReadTable read;
  read.job(1, 9);
  read.lease(true, 1s);
  read.lease(false, 2s);
  SECTION("an earlier run") {
    read.table.add({.at = 3s, .what = BeginRecord{.tenant = TenantId{1}}});
    read.table.add(
        {.at = 3s, .what = LossRecord{.tenant = TenantId{1}, .gpu = kTableGpu, .fault = "Xid_79"}});
  }
  SECTION("a checkpoint") {
    read.table.add(
        {.at = 3s, .what = PastLossRecord{.tenant = TenantId{1}, .gpu = kTableGpu, .fault = "Xid_79"}});
  }
  CHECK(read.table.leases().at(0).lost.empty());
}

}  // namespace
}  // namespace sharedgpu
