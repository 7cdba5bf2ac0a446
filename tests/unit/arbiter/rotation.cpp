// SPDX-License-Identifier: Apache-2.0
// The ledger in several files: nothing is missing wherever the making of a new one stops, or reading fails.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "arbiter/ledger/history.h"
#include "arbiter/ledger/lease_table.h"
#include "arbiter/ledger/ledger.h"
#include "tests/unit/arbiter/some_records.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using namespace test;
using Texts = std::vector<std::string>;

struct Folder : test::TemporaryFolder {
  std::string file(const std::string& end = "") const { return path + "/ledger" + end; }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
};

// Which call fails, and whether all that follow do: then it is as if the arbiter had died there.
struct Faults {
  int call = 0;
  int fails_at = -1;
  bool for_good = false;
};
struct FaultyCalls : FileCalls {
  Faults& faults;
  explicit FaultyCalls(Faults& which) : faults(which) {}
  bool fails() {
    const int call = faults.call++;
    if (faults.fails_at < 0 || call < faults.fails_at || (call > faults.fails_at && !faults.for_good))
      return false;
    errno = ENOSPC;
    return true;
  }
  int open(const std::string& path, int flags) override {
    return fails() ? -1 : FileCalls::open(path, flags);
  }
  ssize_t read(int file, void* bytes, std::size_t size) override {
    return fails() ? -1 : FileCalls::read(file, bytes, size);
  }
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    if (!fails()) return FileCalls::write(file, bytes, size);
    const bool first = faults.call == faults.fails_at + 1;
    return first && size > 1 ? FileCalls::write(file, bytes, size / 2) : -1;
  }
  int link(const std::string& from, const std::string& to) override {
    return fails() ? -1 : FileCalls::link(from, to);
  }
  int rename(const std::string& from, const std::string& to) override {
    return fails() ? -1 : FileCalls::rename(from, to);
  }
  int unlink(const std::string& path) override { return fails() ? -1 : FileCalls::unlink(path); }
};

constexpr Ledger::Limits kSmall{.size = 1500, .files = 3, .waiting = 4096};

// Writes `turns` turns of a second each, from `first` on; returns how many are on the disk for certain.
int write_turns(Ledger& ledger, int first, int turns) {
  for (int i = first; i < first + turns; ++i) {
    ledger.append(lease(true, std::chrono::seconds(2 * i)));
    ledger.append(lease(false, std::chrono::seconds(2 * i + 1)));
    if (!ledger.flush().ok()) return i;
  }
  return first + turns;
}

void begin(Ledger& ledger, const Folder& folder) {
  Ledger::Replay replay;
  REQUIRE(ledger
              .open(
                  folder.file(), [](const Record&) {}, replay)
              .ok());
}

Nanoseconds lease_time(const Folder& folder) {
  Texts texts;
  REQUIRE(read_ledger(folder.file(), Extent::since_checkpoint, texts).ok());
  History history;
  for (const std::string& text : texts)
    replay_ledger(text, [&](const Record& record) { history.add(record); });
  return history.recovered.leases.of_step(kStep, {});  // without one that is open
}

std::size_t turns_told(const Folder& folder) {
  Texts texts;
  REQUIRE(read_ledger(folder.file(), Extent::all_files, texts).ok());
  LeaseTable table;
  for (const std::string& text : texts) replay_ledger(text, [&](const Record& record) { table.add(record); });
  return table.leases().size();
}

TEST_CASE("A file that is full becomes an older one, and the oldest goes") {
  Folder folder;
  {
    Ledger ledger(kSmall, even_ones_live);
    begin(ledger, folder);
    ledger.append(kBoot);
    ledger.append(job_record(1s, 1, 9));
    write_turns(ledger, 1, 100);
    CHECK(ledger.take_complaints().empty());
  }
  CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1", "ledger.2"});
  for (const std::string& name : folder.names())
    CHECK(std::filesystem::file_size(folder.path + "/" + name) < kSmall.size + 300);
  CHECK(lease_time(folder) == 100s);
  const std::size_t turns = turns_told(folder);
  CHECK(turns > 10);
  CHECK(turns < 100);
  {
    Ledger ledger({.size = 1500, .files = 2, .waiting = 4096}, even_ones_live);
    begin(ledger, folder);
    write_turns(ledger, 101, 30);
  }
  CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1"});
  CHECK(lease_time(folder) == 130s);
}

TEST_CASE("Nothing is missing wherever the change of files stops") {
  for (bool for_good : {false, true})
    for (int fails_at = 1;; ++fails_at) {
      Folder folder;
      Faults faults;
      int sure = 0;
      {
        Ledger ledger(kSmall, even_ones_live, std::make_unique<FaultyCalls>(faults));
        begin(ledger, folder);
        ledger.append(kBoot);
        ledger.append(job_record(1s, 1, 9));
        sure = write_turns(ledger, 1, 24) - 1;  // two files are full
        REQUIRE(sure == 24);
        faults = {.call = 0, .fails_at = fails_at, .for_good = for_good};
        const int upto = write_turns(ledger, 25, 24) - 1;
        sure = upto;
        if (!for_good) {  // it goes on as soon as it can
          CHECK(ledger.flush().ok());
          sure = write_turns(ledger, upto + 2, 24) - 2;
        }
      }
      INFO("call " << fails_at << (for_good ? " and all after it" : ""));
      if (faults.call <= fails_at) break;  // there are no more calls
      const Nanoseconds time = lease_time(folder);
      CHECK(time >= std::chrono::seconds(sure));
      CHECK(time <= std::chrono::seconds(sure + 1));
      CHECK(turns_told(folder) >= 1);
      Ledger after(kSmall, even_ones_live);
      begin(after, folder);
      after.append({.at = 1s, .what = BootRecord{.boot_id = "b-2", .booted = 1800000000s}});
      write_turns(after, 200, 50);
      CHECK(after.take_complaints().empty());
      CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1", "ledger.2"});
      CHECK(lease_time(folder) == time + 50s);
    }
}

TEST_CASE("A new file that a power cut tore is gone on with from the one before") {
  Folder folder;
  {
    Ledger ledger(kSmall, even_ones_live);
    begin(ledger, folder);
    ledger.append(kBoot);
    ledger.append(job_record(1s, 1, 9));
    int turns = 0;
    while (folder.names().size() < 2) turns = write_turns(ledger, turns + 1, 1) - 1;
    CHECK(lease_time(folder) == std::chrono::seconds(turns));
  }
  const Nanoseconds time = lease_time(folder);
  for (auto size = std::filesystem::file_size(folder.file()); size-- > 0;) {
    std::filesystem::resize_file(folder.file(), size);
    REQUIRE(lease_time(folder) == time);
  }
}

// Three files, the newest of them torn in its checkpoint.
void write_torn_files(const Folder& folder) {
  {
    Ledger ledger(kSmall, even_ones_live);
    begin(ledger, folder);
    ledger.append(kBoot);
    write_turns(ledger, 1, 60);
  }
  REQUIRE(folder.names() == std::vector<std::string>{"ledger", "ledger.1", "ledger.2"});
  std::filesystem::resize_file(folder.file(), 30);
}

TEST_CASE("Whichever file cannot be read, the failure names it, and the older ones are read") {
  Folder folder;
  write_torn_files(folder);
  Texts all;
  REQUIRE(read_ledger(folder.file(), Extent::all_files, all).ok());
  REQUIRE(all.size() == 3);
  const Texts without_oldest(all.begin() + 1, all.end());
  const Texts without_middle{all[0], all[2]};
  std::set<std::string> failed;
  for (int fails_at = 0;; ++fails_at) {
    Faults faults{.call = 0, .fails_at = fails_at, .for_good = false};
    FaultyCalls calls(faults);
    Texts texts;
    const Status read = read_ledger(folder.file(), Extent::all_files, texts, calls);
    if (faults.call <= fails_at) {  // there are no more calls
      CHECK(read.ok());
      CHECK(texts == all);
      break;
    }
    CHECK(read.code() == ENOSPC);
    failed.insert(read.message());
    if (read.message() == folder.file() + ": No space left on device")
      CHECK(texts.empty());
    else
      CHECK(texts ==
            (read.message() == folder.file(".1: No space left on device") ? without_middle : without_oldest));
  }
  CHECK(failed == std::set<std::string>{folder.file(": No space left on device"),
                                        folder.file(".1: No space left on device"),
                                        folder.file(".2: No space left on device")});
}

TEST_CASE("A file that goes while the ledger is read is no failure") {
  struct GoneCalls : FileCalls {
    std::string gone;
    int open(const std::string& path, int flags) override {
      if (path != gone) return FileCalls::open(path, flags);
      errno = ENOENT;
      return -1;
    }
  };
  Folder folder;
  write_torn_files(folder);
  GoneCalls calls;
  calls.gone = folder.file(".2");
  Texts texts;
  CHECK(read_ledger(folder.file(), Extent::all_files, texts, calls).ok());
  CHECK(texts.size() == 2);
}

TEST_CASE("An arbiter starts without an older file that it cannot read, and complains") {
  Folder folder;
  write_torn_files(folder);
  unsigned refused = 0;
  unsigned complained = 0;
  for (int fails_at = 0;; ++fails_at) {
    Faults faults{.call = 0, .fails_at = fails_at, .for_good = false};
    Ledger ledger(kSmall, even_ones_live, std::make_unique<FaultyCalls>(faults));
    Ledger::Replay replay;
    unsigned records = 0;
    const Status opened = ledger.open(
        folder.file(), [&](const Record&) { ++records; }, replay);
    const std::vector<std::string> complaints = ledger.take_complaints();
    if (faults.call <= fails_at) break;
    if (!opened.ok()) {
      ++refused;
      CHECK(opened.message() == folder.file() + ": No space left on device");
      continue;
    }
    ++complained;
    CHECK(records == replay.records + replay.damaged);
    CHECK(complaints == std::vector<std::string>{
                            folder.file(".1: No space left on device; what is in it is not known here")});
  }
  CHECK(refused == 4);     // the newest is opened twice and read twice
  CHECK(complained == 3);  // the older one is opened once and read twice
}

TEST_CASE("Files are met once while they change their names") {
  Folder folder;
  {
    Ledger ledger({}, even_ones_live);
    begin(ledger, folder);
    write_turns(ledger, 1, 3);
  }
  std::filesystem::create_hard_link(folder.file(), folder.file(".1"));
  Texts texts;
  REQUIRE(read_ledger(folder.file(), Extent::all_files, texts).ok());
  CHECK(texts.size() == 1);
  CHECK(turns_told(folder) == 3);
}

TEST_CASE("Records that are lost are told, and the next checkpoint makes them good") {
  Folder folder;
  Faults faults;
  Ledger ledger(kSmall, even_ones_live, std::make_unique<FaultyCalls>(faults));
  begin(ledger, folder);
  ledger.append(kBoot);
  ledger.append(job_record(1s, 1, 9));
  write_turns(ledger, 1, 1);
  faults = {.call = 0, .fails_at = 0, .for_good = true};
  for (int i = 2; i <= 60; ++i) write_turns(ledger, i, 1);
  auto complaints = ledger.take_complaints();
  REQUIRE(complaints.size() == 1);
  CHECK(complaints[0].find("records are lost from now on") == 0);
  faults = {};
  CHECK(ledger.flush().ok());
  write_turns(ledger, 61, 1);
  complaints = ledger.take_complaints();
  REQUIRE(complaints.size() == 1);
  CHECK(complaints[0].find(" records were lost") != std::string::npos);
  CHECK(lease_time(folder) == 61s);
  Texts texts;
  REQUIRE(read_ledger(folder.file(), Extent::all_files, texts).ok());
  std::uint64_t lost = 0;
  for (const std::string& text : texts)
    replay_ledger(text, [&](const Record& record) {
      if (const auto* loss = std::get_if<LostRecord>(&record.what)) lost += loss->records;
    });
  CHECK(lost > 10);
}

TEST_CASE("Once records were lost a checkpoint makes them good, however little is written after that") {
  Folder folder;
  Faults faults;
  Ledger ledger({.size = 1 << 20, .files = 3, .waiting = 300}, even_ones_live,
                std::make_unique<FaultyCalls>(faults));
  begin(ledger, folder);
  ledger.append(kBoot);
  ledger.append(job_record(1s, 1, 9));
  write_turns(ledger, 1, 1);
  faults = {.call = 0, .fails_at = 0, .for_good = true};
  for (int i = 2; i <= 20; ++i) write_turns(ledger, i, 1);
  faults = {};
  CHECK(ledger.flush().ok());
  CHECK(lease_time(folder) < 20s);
  write_turns(ledger, 21, 1);
  CHECK(lease_time(folder) == 21s);
}

TEST_CASE("A checkpoint that is larger than a file should be is not written again with each record") {
  Folder folder;
  Ledger ledger({.size = 200, .files = 3, .waiting = 1 << 20}, even_ones_live);
  begin(ledger, folder);
  ledger.append(kBoot);
  for (std::uint32_t job = 1; job <= 40; ++job) ledger.append(job_record(1s, job, job));
  REQUIRE(ledger.flush().ok());
  REQUIRE(std::filesystem::file_size(folder.file()) > 2000);
  REQUIRE(folder.names() == std::vector<std::string>{"ledger", "ledger.1"});
  write_turns(ledger, 1, 5);
  CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1"});
  write_turns(ledger, 6, 100);
  CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1", "ledger.2"});
}

}  // namespace
}  // namespace sharedgpu
