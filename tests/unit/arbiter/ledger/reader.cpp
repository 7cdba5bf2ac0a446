// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/reader.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Calls = std::vector<std::string>;

LeaseKey lease_of(std::uint32_t step) {
  return {.tenant = TenantId{1}, .gpu = GpuUuid{{1}}, .step = {.job = 9, .step = step}};
}

// Records each call as text, with the step of a lease and times in seconds.
class Listener final : private LedgerVisitor {
 public:
  void boot(Nanoseconds at, const char* id) { add(at, BootRecord{.boot_id = id}); }
  void grant(Nanoseconds at, std::uint32_t step, std::uint64_t epoch = 1) {
    add(at, LeaseRecord{.grant = true, .epoch = Epoch{epoch}, .key = lease_of(step)});
  }
  void release(Nanoseconds at, std::uint32_t step, std::uint64_t epoch = 1) {
    add(at, LeaseRecord{.grant = false, .epoch = Epoch{epoch}, .key = lease_of(step)});
  }
  void add(Nanoseconds at, auto what) { reader_.read({.at = at, .what = what}, *this); }

  Calls take_calls() { return std::exchange(calls_, {}); }
  const LedgerReader& reader() const { return reader_; }

 private:
  static std::string seconds(Nanoseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count());
  }
  void on_boot(const BootRecord& boot, bool rebooted) override {
    calls_.push_back("boot " + boot.boot_id + (rebooted ? " of the host" : ""));
  }
  void on_grant(const LeaseKey& key, const OpenLease& lease) override {
    calls_.push_back("grant " + std::to_string(key.step.step) + " at " + seconds(lease.since));
  }
  void on_release(const LeaseKey& key, const OpenLease& lease, Nanoseconds at) override {
    calls_.push_back("release " + std::to_string(key.step.step) + " from " + seconds(lease.since) + " to " +
                     seconds(at));
  }
  void on_checkpoint(const CheckpointRecord&) override { calls_.push_back("checkpoint"); }
  void on_complete() override { calls_.push_back("complete"); }

  LedgerReader reader_;
  Calls calls_;
};

TEST_CASE("A lease is granted once and released once, whatever is repeated") {
  Listener ledger;
  ledger.release(1s, 0);
  ledger.grant(2s, 0);
  ledger.grant(3s, 0);
  ledger.release(5s, 0);
  ledger.release(6s, 0);
  CHECK(ledger.take_calls() == Calls{"grant 0 at 2", "release 0 from 2 to 5"});
  CHECK(ledger.reader().open().empty());
  CHECK(ledger.reader().last_record() == 6s);
}

TEST_CASE("The highest epoch counts releases whose grants were lost, and checkpoints") {
  Listener ledger;
  ledger.release(1s, 0, 7);
  ledger.grant(2s, 0, 5);
  CHECK(ledger.reader().last_epoch() == Epoch{7});
  ledger.add(3s, CheckpointRecord{.tenant = {}, .session = {}, .epoch = Epoch{9}});
  CHECK(ledger.reader().last_epoch() == Epoch{9});
}

TEST_CASE("Leases outlive an arbiter, and end with the last record of a boot of the host") {
  Listener ledger;
  ledger.boot(1s, "one");
  ledger.grant(2s, 0);
  ledger.boot(10s, "one");
  ledger.add(12s, SeenRecord{});
  ledger.boot(3s, "two");
  CHECK(ledger.take_calls() == Calls{"boot one of the host", "grant 0 at 2", "boot one",
                                     "release 0 from 2 to 12", "boot two of the host"});
  CHECK(ledger.reader().last_record() == 3s);
}

TEST_CASE("A lease whose release was lost ends with the last record before the loss") {
  Listener ledger;
  ledger.grant(1s, 0);
  ledger.add(4s, SeenRecord{});
  ledger.add(6s, LostRecord{.records = 2});
  ledger.add(8s, SeenRecord{});
  ledger.take_calls();
  SECTION("the next grant shows it") {
    ledger.grant(9s, 0, 2);
    CHECK(ledger.take_calls() == Calls{"release 0 from 1 to 4", "grant 0 at 9"});
  }
  SECTION("a checkpoint shows it") {
    ledger.add(9s, CheckpointRecord{});
    ledger.add(9s, CompleteRecord{});
    CHECK(ledger.take_calls() == Calls{"checkpoint", "release 0 from 1 to 4", "complete"});
  }
  SECTION("a lease that was granted after the loss is not concerned") {
    ledger.grant(10s, 1);
    ledger.add(20s, SeenRecord{});
    ledger.add(20s, LostRecord{});
    ledger.grant(30s, 1, 2);
    CHECK(ledger.take_calls() == Calls{"grant 1 at 10", "release 1 from 10 to 20", "grant 1 at 30"});
  }
  SECTION("a second loss does not make it longer") {
    ledger.add(8s, LostRecord{});
    ledger.grant(9s, 0, 2);
    CHECK(ledger.take_calls() == Calls{"release 0 from 1 to 4", "grant 0 at 9"});
  }
  SECTION("a checkpoint that grants it again ends the doubt") {
    ledger.add(9s, CheckpointRecord{});
    ledger.grant(1s, 0);
    ledger.add(9s, CompleteRecord{});
    ledger.add(15s, SeenRecord{});
    ledger.grant(16s, 0, 2);
    CHECK(ledger.take_calls() == Calls{"checkpoint", "complete", "release 0 from 1 to 15", "grant 0 at 16"});
  }
}

TEST_CASE("A lease ends no later than the next one of its step begins, which a checkpoint may say late") {
  Listener ledger;
  ledger.grant(1s, 0);
  ledger.add(20s, CheckpointRecord{});
  ledger.grant(5s, 0, 2);
  CHECK(ledger.take_calls() == Calls{"grant 0 at 1", "checkpoint", "release 0 from 1 to 5", "grant 0 at 5"});
}

TEST_CASE("A checkpoint that lacks a line or its end does not say which leases have ended") {
  Listener ledger;
  ledger.grant(1s, 0);
  ledger.add(5s, CheckpointRecord{});
  SECTION("a damaged line") {
    ledger.add(5s, LostRecord{});
    ledger.add(5s, CompleteRecord{});
  }
  SECTION("no end") { ledger.add(5s, SeenRecord{}); }
  ledger.take_calls();
  ledger.release(7s, 0);
  CHECK(ledger.take_calls() == Calls{"release 0 from 1 to 7"});
}

TEST_CASE("A loss puts all open leases in doubt, and a whole checkpoint ends all that it does not grant") {
  Listener ledger;
  for (const std::uint32_t step : {0u, 1u, 2u}) ledger.grant(1s, step);
  ledger.add(4s, SeenRecord{});
  ledger.add(4s, LostRecord{});
  ledger.add(8s, SeenRecord{});
  ledger.add(9s, CheckpointRecord{});
  ledger.grant(1s, 1);
  ledger.take_calls();
  ledger.add(9s, CompleteRecord{});
  CHECK(ledger.take_calls() == Calls{"release 0 from 1 to 4", "release 2 from 1 to 4", "complete"});
  ledger.release(10s, 1);
  CHECK(ledger.take_calls() == Calls{"release 1 from 1 to 10"});
}

TEST_CASE("The end of a boot of the host ends all leases") {
  Listener ledger;
  ledger.boot(1s, "one");
  for (const std::uint32_t step : {0u, 1u}) ledger.grant(2s, step);
  ledger.take_calls();
  ledger.boot(1s, "two");
  CHECK(ledger.take_calls() ==
        Calls{"release 0 from 2 to 2", "release 1 from 2 to 2", "boot two of the host"});
  CHECK(ledger.reader().boot().boot_id == "two");
}

TEST_CASE("The lines of a text are read one by one: empty lines are skipped, damaged lines are reported") {
  const auto line = [](Nanoseconds at, auto what) { return format_record({.at = at, .what = what}); };
  const std::string text = "\n" + line(3s, SeenRecord{}) + "\n\n" + line(5s, LostRecord{.records = 4}) +
                           "damaged\n" + line(7s, LostRecord{.records = 2}) + "\n" + "torn";
  std::vector<std::pair<Nanoseconds, std::uint64_t>> losses;
  const LedgerReplay replay = replay_ledger(text, [&](const Record& record) {
    if (const auto* loss = std::get_if<LostRecord>(&record.what))
      losses.emplace_back(record.at, loss->records);
  });
  CHECK(replay.records == 3);
  CHECK(replay.damaged == 2);
  CHECK(replay.lost == 6);
  CHECK(losses == std::vector<std::pair<Nanoseconds, std::uint64_t>>{{5s, 4}, {5s, 0}, {7s, 2}, {7s, 0}});
  LedgerReplay sum = replay;
  sum += {.records = 10, .damaged = 20, .lost = 30};
  CHECK(sum.records == 13);
  CHECK(sum.damaged == 22);
  CHECK(sum.lost == 36);
}

// A line with an unknown kind of record, as a newer version might write it.
std::string newer_line() {
  const std::string text = " 6000000000 frobnicated 1 2";
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text));
  return checksum + text + "\n";
}

TEST_CASE("Records of a kind that only newer versions know are skipped, and count as no damage") {
  const std::string known = format_record({.at = 3s, .what = SeenRecord{}});
  const std::string newer = newer_line();
  unsigned records = 0;
  const LedgerReplay replay = replay_ledger(known + newer + known, [&](const Record&) { ++records; });
  CHECK(records == 2);
  CHECK(replay.records == 2);
  CHECK(replay.unknown == 1);
  CHECK(replay.damaged == 0);
  LedgerReplay sum = replay;
  sum += replay;
  CHECK(sum.unknown == 2);
  // Three damaged lines: a line of a newer version without its end, a line of a newer version with a wrong
  // checksum, and a record of a known kind with wrong contents.
  std::string wrong = newer;
  wrong[0] = wrong[0] == '0' ? '1' : '0';
  std::string content = " 6000000000 lost x";
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(content));
  for (const std::string& text : {newer.substr(0, newer.size() - 1), wrong, checksum + content + "\n"}) {
    const LedgerReplay damaged = replay_ledger(text, [](const Record&) {});
    CHECK(damaged.damaged == 1);
    CHECK(damaged.unknown == 0);
  }
}

}  // namespace
}  // namespace sharedgpu
