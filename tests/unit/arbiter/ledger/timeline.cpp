// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/timeline.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kGpu{{1}};
const GpuUuid kOther{{2}};
constexpr Nanoseconds kBooted = 1700000000s;

struct ReadTimeline {
  Timeline line;

  ReadTimeline() { starts("one", 0s); }
  void starts(const char* boot, Nanoseconds at) {
    line.add({.at = at, .what = BootRecord{.boot_id = boot, .booted = kBooted}});
  }
  void job(std::uint64_t tenant, Nanoseconds at = 0s) {
    TenantName name;
    name.job = static_cast<std::uint32_t>(tenant);
    line.add({.at = at, .what = TenantRecord{.tenant = TenantId{tenant}, .name = name, .uid = 1000}});
  }
  void lease(bool grant, Nanoseconds at, std::uint64_t tenant = 1, std::uint32_t step = 0,
             GpuUuid gpu = kGpu) {
    const LeaseKey key{.tenant = TenantId{tenant}, .gpu = gpu, .step = {.job = 9, .step = step}};
    line.add({.at = at, .what = LeaseRecord{.grant = grant, .epoch = Epoch{1}, .key = key}});
  }
  void used(Nanoseconds at, const Figures& figures, std::uint64_t tenant = 1, StepName step = {}) {
    line.add({.at = at, .what = UsedRecord{.tenant = TenantId{tenant}, .step = step, .figures = figures}});
  }
  using Interval = std::pair<Nanoseconds, Nanoseconds>;
  std::vector<Interval> of(SpanKind kind, std::uint64_t tenant = 1) const {
    std::vector<Interval> found;
    for (const Span& span : line.spans())
      if (span.kind == kind && span.tenant == TenantId{tenant})
        found.emplace_back(span.from - kBooted, span.to - kBooted);
    return found;
  }
};
using Intervals = std::vector<ReadTimeline::Interval>;

TEST_CASE("An element of a job array is known as such") {
  ReadTimeline read;
  read.job(22);
  read.line.add(
      {.at = 1s,
       .what = ClassRecord{.tenant = TenantId{22}, .job_class = {}, .element = {.array = 21, .index = 1}}});
  const Timeline::Who& who = read.line.tenants().at(TenantId{22});
  CHECK(label_of(who.name, TenantId{22}, who.element) == "job 21_1");
}

TEST_CASE("A wait and an entry end when the next lease begins, and overuse ends with the lease") {
  ReadTimeline read;
  read.job(1);
  read.lease(true, 10s);
  read.lease(false, 15s);
  read.used(15s, {.waited = 4s, .overuse = 1s, .entering = 2s});
  read.lease(true, 30s);
  read.lease(false, 33s);
  read.used(33s, {.waited = 7s, .overuse = 1s, .entering = 3s});
  CHECK(read.of(SpanKind::lease) == Intervals{{10s, 15s}, {30s, 33s}});
  CHECK(read.of(SpanKind::waiting) == Intervals{{6s, 10s}, {27s, 30s}});
  CHECK(read.of(SpanKind::entering) == Intervals{{8s, 10s}, {29s, 30s}});
  CHECK(read.of(SpanKind::overuse) == Intervals{{14s, 15s}});
}

TEST_CASE("An eviction ends when its record is written") {
  ReadTimeline read;
  read.job(1);
  read.lease(true, 1s);
  read.lease(false, 5s);
  read.used(5s, {});
  read.used(7s, {.evicting = 2s});
  read.used(20s, {.evicting = 3s});
  CHECK(read.of(SpanKind::evicting) == Intervals{{5s, 7s}, {19s, 20s}});
}

TEST_CASE("A wait that is recorded in several parts is one span") {
  ReadTimeline read;
  read.job(1);
  read.used(15s, {.waited = 10s});
  read.used(30s, {.waited = 25s});
  read.lease(true, 40s);
  read.used(45s, {.waited = 35s});
  CHECK(read.of(SpanKind::waiting) == Intervals{{5s, 40s}});
}

TEST_CASE(
    "Steps that hold a GPU together are one lease of their tenant, and open leases go up to the last "
    "record") {
  ReadTimeline read;
  read.job(1);
  read.lease(true, 1s, 1, 0);
  read.lease(true, 2s, 1, 1);
  read.lease(false, 3s, 1, 0);
  read.lease(false, 4s, 1, 1);
  read.lease(true, 5s, 1, 0, kOther);
  read.line.add({.at = 8s, .what = SeenRecord{}});
  CHECK(read.of(SpanKind::lease) == Intervals{{1s, 4s}, {5s, 8s}});
  const std::vector<Span> spans = read.line.spans();
  CHECK_FALSE(spans.front().open);
  CHECK(spans.back().open);
  CHECK(read.line.tenants().at(TenantId{1}).gpus == std::set<GpuUuid>{kGpu, kOther});
}

TEST_CASE("Totals of steps are not counted again, and a new run of a job begins at zero") {
  ReadTimeline read;
  read.job(1);
  read.lease(true, 10s);
  read.used(12s, {.waited = 2s}, 1, {.job = 9, .step = 0});
  read.used(12s, {.waited = 2s});
  read.lease(false, 12s);
  read.line.add({.at = 13s, .what = BeginRecord{.tenant = TenantId{1}}});
  read.lease(true, 20s);
  read.lease(false, 21s);
  read.used(21s, {.waited = 1s});
  CHECK(read.of(SpanKind::waiting) == Intervals{{8s, 10s}, {19s, 20s}});
}

TEST_CASE("Times never exceed the time between two records, whatever the ledger says") {
  ReadTimeline read;
  read.job(1, 5s);
  read.lease(true, 6s);
  read.lease(false, 7s);
  read.used(8s, {.waited = 100s, .overuse = 100s, .entering = 100s, .evicting = 100s});
  CHECK(read.of(SpanKind::waiting) == Intervals{{5s, 6s}, {7s, 8s}});
  CHECK(read.of(SpanKind::evicting) == Intervals{{5s, 8s}});
  CHECK(read.of(SpanKind::overuse) == Intervals{{6s, 7s}});
  read.starts("two", 1s);
  read.used(2s, {.waited = 1s});
  CHECK(read.of(SpanKind::waiting).size() == 2);
}

TEST_CASE("A period cuts spans") {
  ReadTimeline read;
  read.job(1);
  read.lease(true, 10s);
  read.lease(false, 20s);
  const auto parts = within(read.line.spans(), kBooted + 12s, kBooted + 15s);
  REQUIRE(parts.size() == 1);
  CHECK(parts[0].from == kBooted + 12s);
  CHECK(parts[0].to == kBooted + 15s);
  CHECK(within(read.line.spans(), kBooted + 21s, Nanoseconds::max()).empty());
}

}  // namespace
}  // namespace sharedgpu
