// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/ledger_trace.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "arbiter/ledger/ledger.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kGpu{{1}};
const GpuUuid kOther{{2}};

struct Written {
  LedgerTrace trace;

  Written() { trace.add({.at = 0s, .what = BootRecord{.boot_id = "one", .booted = 1700000000s}}); }
  void job(std::uint64_t tenant, std::uint32_t number, const JobOptions& options = {}) {
    TenantName name;
    name.job = number;
    trace.add({.at = {}, .what = TenantRecord{.tenant = TenantId{tenant}, .name = name, .uid = 1000}});
    trace.add({.at = {}, .what = OptionsRecord{.tenant = TenantId{tenant}, .options = options}});
  }
  void held(std::uint64_t tenant, Nanoseconds from, Nanoseconds to, const GpuUuid& gpu = kGpu,
            std::uint32_t step = 0) {
    const LeaseKey key{.tenant = TenantId{tenant}, .gpu = gpu, .step = {.job = 9, .step = step}};
    trace.add({.at = from, .what = LeaseRecord{.grant = true, .epoch = Epoch{1}, .key = key}});
    trace.add({.at = to, .what = LeaseRecord{.grant = false, .epoch = Epoch{1}, .key = key}});
  }
  void used(std::uint64_t tenant, Bytes footprint, Nanoseconds waited, StepName step = {}) {
    Figures figures;
    figures.footprint = footprint;
    figures.waited = waited;
    trace.add({.at = 100s, .what = UsedRecord{.tenant = TenantId{tenant}, .step = step, .figures = figures}});
  }
};

TEST_CASE("Leases become bursts, and the gaps without the waits become pauses") {
  Written ledger;
  JobOptions options;
  options.units = 4;
  options.share_request = 30;
  options.share_limit = 60;
  options.priority = 2;
  ledger.job(1, 9, options);
  ledger.job(2, 10);
  ledger.held(1, 10s, 12s);
  ledger.held(1, 16s, 17s);
  ledger.held(1, 19s, 22s);
  ledger.held(2, 12s, 16s);
  ledger.used(1, gibibytes(20), 3s);
  ledger.used(1, gibibytes(9), 1s, {.job = 9, .step = 0});  // a step of the job, included in the job's 20 GiB
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  CHECK(replay.names == std::vector{kGpu});
  CHECK(replay.unsized == 1);
  REQUIRE(replay.gpus[0].size() == 2);
  const Program& first = replay.gpus[0][0];
  CHECK(first.size == 25);
  CHECK(first.arrival == 0s);
  CHECK(first.claims.units == 4);
  CHECK(first.claims.priority == 2);
  CHECK(first.claims.request == 0.3);
  CHECK(first.claims.limit == 0.6);
  CHECK(first.claims.timed);
  REQUIRE(first.pieces.size() == 3);
  CHECK(first.pieces[0].burst == 2s);
  CHECK(first.pieces[0].pause == 2s);  // half of the total time of the four gaps was waiting, not pausing
  CHECK(first.pieces[1].burst == 1s);
  CHECK(first.pieces[1].pause == 1s);
  CHECK(first.pieces[2].burst == 3s);
  const Program& second = replay.gpus[0][1];
  CHECK(second.size == 100);
  CHECK(second.arrival == 2s);
  REQUIRE(second.pieces.size() == 1);
}

TEST_CASE("The wait for the first lease comes before that lease, and is not subtracted from the pauses") {
  Written ledger;
  ledger.job(1, 9);
  ledger.held(2, 5s, 6s);
  ledger.held(1, 60s, 61s);
  ledger.used(1, gibibytes(20), 57s);
  ledger.held(1, 63s, 64s);
  ledger.used(1, gibibytes(20), 58s);
  ledger.held(1, 64s, 65s, kOther);
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 2);
  REQUIRE(replay.gpus[0].size() == 2);
  const Program& late = replay.gpus[0][0];
  CHECK(late.arrival == 0s);  // the times begin with the request of tenant 1, whose lease began late
  REQUIRE(late.pieces.size() == 2);
  CHECK(late.pieces[0].pause == 1s);
  CHECK(replay.gpus[0][1].arrival == 2s);
  CHECK(replay.gpus[1][0].arrival == 61s);
}

TEST_CASE("If a ledger begins with sums, the waits before its beginning are not subtracted from the pauses") {
  LedgerTrace trace;
  TenantName name;
  name.job = 9;
  const auto used = [](Nanoseconds waited) {
    return UsedRecord{.tenant = TenantId{1}, .step = {}, .figures = {.waited = waited}};
  };
  const auto lease = [](bool grant) {
    return LeaseRecord{.grant = grant, .epoch = Epoch{1}, .key = {TenantId{1}, kGpu, {.job = 9, .step = 0}}};
  };
  trace.add({.at = 100s, .what = CheckpointRecord{.tenant = TenantId{1}, .session = {}, .epoch = {}}});
  trace.add({.at = 100s, .what = BootRecord{.boot_id = "one", .booted = 1700000000s}});
  trace.add({.at = 100s, .what = TenantRecord{.tenant = TenantId{1}, .name = name, .uid = 1000}});
  trace.add({.at = 100s, .what = used(70s)});
  trace.add({.at = 100s, .what = CompleteRecord{}});
  trace.add({.at = 110s, .what = lease(true)});
  trace.add({.at = 111s, .what = lease(false)});
  trace.add({.at = 111s, .what = used(74s)});
  trace.add({.at = 115s, .what = lease(true)});
  trace.add({.at = 116s, .what = lease(false)});
  trace.add({.at = 116s, .what = used(75s)});
  const LedgerTrace::Replay replay = trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  REQUIRE(replay.gpus[0].size() == 1);
  REQUIRE(replay.gpus[0][0].pieces.size() == 2);
  CHECK(replay.gpus[0][0].pieces[0].pause == 3s);
}

TEST_CASE("Sums that a later file of the ledger repeats are not subtracted again") {
  Written ledger;
  ledger.job(1, 9);
  ledger.held(1, 10s, 12s);
  ledger.used(1, gibibytes(20), 1s);
  ledger.held(1, 16s, 17s);
  ledger.used(1, gibibytes(20), 3s);
  ledger.trace.add({.at = 100s, .what = CheckpointRecord{.tenant = TenantId{1}, .session = {}, .epoch = {}}});
  ledger.used(1, gibibytes(20), 3s);
  ledger.trace.add({.at = 100s, .what = CompleteRecord{}});
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  REQUIRE(replay.gpus[0].size() == 1);
  REQUIRE(replay.gpus[0][0].pieces.size() == 2);
  CHECK(replay.gpus[0][0].pieces[0].pause == 2s);
}

TEST_CASE("Concurrent steps are one burst, while GPUs are separate, and so are the runs of a job") {
  Written ledger;
  ledger.job(1, 9);
  ledger.held(1, 1s, 4s, kGpu, 0);
  ledger.held(1, 3s, 5s, kGpu, 1);
  ledger.held(1, 1s, 2s, kOther);
  ledger.used(1, gibibytes(40), 0s);
  ledger.trace.add({.at = 6s, .what = BeginRecord{.tenant = TenantId{1}}});
  ledger.held(1, 7s, 8s);
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 2);
  REQUIRE(replay.gpus[0].size() == 2);
  REQUIRE(replay.gpus[0][0].pieces.size() == 1);
  CHECK(replay.gpus[0][0].pieces[0].burst == 4s);
  CHECK(replay.gpus[0][0].size == 25);  // half of the 40 GiB on each of two GPUs
  CHECK(replay.gpus[0][1].arrival == 6s);
  CHECK(replay.gpus[0][1].size == 100);
  CHECK(replay.gpus[1].size() == 1);
}

TEST_CASE("A lease that a crash of the host ended is no part of the next turn") {
  Written ledger;
  ledger.job(1, 9);
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 9, .step = 0}};
  ledger.trace.add({.at = 5s, .what = LeaseRecord{.grant = true, .epoch = Epoch{1}, .key = key}});
  ledger.used(1, gibibytes(20), 4s);  // written at 100 s; the job had waited for its first lease
  ledger.trace.add({.at = 0s, .what = BootRecord{.boot_id = "two", .booted = 1700001000s}});
  ledger.held(1, 50s, 60s);
  ledger.used(1, gibibytes(20), 46s);
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  REQUIRE(replay.gpus[0].size() == 1);
  const std::vector<Program::Piece>& pieces = replay.gpus[0][0].pieces;
  REQUIRE(pieces.size() == 2);
  CHECK(pieces[0].burst == 95s);
  CHECK(pieces[0].pause == 908s);  // 950 s minus 42 s of waiting
}

TEST_CASE("A ledger that was rotated is replayed from its oldest file on") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path + "/ledger";
  TenantRecord job{.tenant = TenantId{1}, .name = {}, .uid = 1000};
  job.name.job = 9;
  constexpr int kTurns = 40;
  {
    Ledger ledger({.size = 1500, .files = 16, .waiting = 4096}, [](pid_t) { return std::uint64_t{0}; });
    Ledger::Replay none;
    REQUIRE(ledger
                .open(
                    path, [](const Record&) {}, none)
                .ok());
    ledger.append({.at = 1s, .what = BootRecord{.boot_id = "one", .booted = 1700000000s}});
    ledger.append({.at = 1s, .what = job});
    for (int turn = 1; turn <= kTurns; ++turn) {
      const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 9, .step = 0}};
      ledger.append({.at = turn * 10s, .what = LeaseRecord{.grant = true, .epoch = Epoch{1}, .key = key}});
      ledger.append(
          {.at = turn * 10s + 4s, .what = LeaseRecord{.grant = false, .epoch = Epoch{1}, .key = key}});
      REQUIRE(ledger.flush().ok());
    }
  }
  REQUIRE(std::filesystem::exists(path + ".2"));
  std::ofstream(path, std::ios::app) << "torn";

  LedgerTrace trace;
  unsigned damaged = 0;
  REQUIRE(trace.read(path, damaged).ok());
  CHECK(damaged == 1);
  const LedgerTrace::Replay replay = trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  REQUIRE(replay.gpus[0].size() == 1);
  const std::vector<Program::Piece>& pieces = replay.gpus[0][0].pieces;
  REQUIRE(pieces.size() == kTurns);
  for (const Program::Piece& piece : pieces) CHECK(piece.burst == 4s);
  CHECK(trace.read(path + "-none", damaged).code() == ENOENT);
}

TEST_CASE("The leases of a ledger are demanded again under every policy, and the work is done") {
  Written ledger;
  for (std::uint64_t tenant : {1, 2, 3}) {
    ledger.job(tenant, static_cast<std::uint32_t>(tenant));
    for (int turn = 0; turn < 5; ++turn)
      ledger.held(tenant, 1s * (3 * turn + static_cast<int>(tenant)),
                  1s * (3 * turn + static_cast<int>(tenant)) + 900ms);
    ledger.used(tenant, gibibytes(50), 4s);
  }
  const LedgerTrace::Replay replay = ledger.trace.replay(gibibytes(80));
  REQUIRE(replay.gpus.size() == 1);
  for (const char* policy : {"round-robin", "fcfs", "credit", "elastic"}) {
    CAPTURE(policy);
    Stage stage(1, {}, 1ms, replay.gpus[0], policy);
    stage.run(100s);
    CHECK(stage.all_ended());
    for (std::size_t i = 0; i < 3; ++i) CHECK(stage.seen(i).lease >= 4500ms);
  }
}

}  // namespace
}  // namespace sharedgpu
