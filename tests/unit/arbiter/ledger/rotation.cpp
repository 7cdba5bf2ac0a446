// SPDX-License-Identifier: Apache-2.0
// The ledger in several files: no record is lost if any call fails while a new file is created, or while the
// files are read.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <utility>

#include "arbiter/ledger/history.h"
#include "arbiter/ledger/lease_table.h"
#include "arbiter/ledger/ledger.h"
#include "tests/unit/arbiter/ledger/some_records.h"
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

// Call number `fails_at` fails, counted from 0; -1: no call fails. With `for_good`, all later calls fail,
// too, as if the arbiter had died at this call. If call number `fails_at` is a write of several bytes, it
// writes half of them instead of failing. `call`: the number of calls so far.
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

// Writes turns of a second each, from number `first` on. Returns the number of the first turn that is not
// certainly on the disk.
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
  return history.recovered.leases.of_step(kStep, {});  // no lease is open, so the end time is not used
}

std::size_t turns_told(const Folder& folder) {
  Texts texts;
  REQUIRE(read_ledger(folder.file(), Extent::all_files, texts).ok());
  LeaseTable table;
  for (const std::string& text : texts) replay_ledger(text, [&](const Record& record) { table.add(record); });
  return table.leases().size();
}

TEST_CASE("A full file becomes an older file, and the oldest file is removed") {
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

TEST_CASE("No record is missing, wherever the change of files stops") {
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
        if (!for_good) {  // the ledger continues as soon as writes succeed
          CHECK(ledger.flush().ok());
          sure = write_turns(ledger, upto + 2, 24) - 2;
        }
      }
      INFO("call " << fails_at << (for_good ? " and all after it" : ""));
      if (faults.call <= fails_at) break;  // every call has failed once
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

TEST_CASE("After a power cut tore a new file, the arbiter continues from the previous file") {
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

// Writes three files, the newest of which ends in the middle of its checkpoint.
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
    if (faults.call <= fails_at) {  // every call has failed once
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

TEST_CASE("A file that is removed while the ledger is read is no failure") {
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
    CHECK(complaints ==
          std::vector<std::string>{folder.file(".1: No space left on device; its records are missing here")});
  }
  // Each call fails once. The newest file is opened twice and read twice; the older file is
  // opened once and read twice.
  CHECK(refused == 4);
  CHECK(complained == 3);
}

TEST_CASE("Each file is read once while files are renamed") {
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

TEST_CASE("Lost records are reported, and the next checkpoint replaces them") {
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

TEST_CASE("After a loss of records a checkpoint replaces them, however little is written later") {
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

// File calls that fail if their names are in `failing`. A call is named by its function and by the file that
// it makes or removes, such as "rename ledger.1".
struct NamedCalls : FileCalls {
  struct State {
    std::set<std::string> failing;
    unsigned begun = 0;  // number of new files that were begun
  };
  State& state;
  int new_file = -1;
  explicit NamedCalls(State& its) : state(its) {}
  bool fails(const std::string& call, const std::string& path) const {
    errno = EIO;
    return state.failing.contains(call + " " + std::filesystem::path(path).filename().string());
  }
  int open(const std::string& path, int flags) override {
    const bool is_new = path.ends_with(".new");
    if (is_new) ++state.begun;
    const int file = fails("open", path) ? -1 : FileCalls::open(path, flags);
    if (is_new) new_file = file;
    return file;
  }
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    return file == new_file && fails("write", "ledger.new") ? -1 : FileCalls::write(file, bytes, size);
  }
  int link(const std::string& from, const std::string& to) override {
    return fails("link", to) ? -1 : FileCalls::link(from, to);
  }
  int rename(const std::string& from, const std::string& to) override {
    if (fails("rename", to)) return -1;
    if (from.ends_with(".new")) new_file = -1;
    return FileCalls::rename(from, to);
  }
  int unlink(const std::string& path) override {
    return fails("unlink", path) ? -1 : FileCalls::unlink(path);
  }
};

// The mean length of the lines of a grant and a release, for times from 10 s to 99 s. A release is two bytes
// longer than a grant.
std::uint64_t line_size() { return format_record(lease(true, 10s)).size() + 1; }
// Appends a grant if `number` is even, or else a release, and writes it to the file.
void write_line(Ledger& ledger, int number) {
  ledger.append(lease(number % 2 == 0, std::chrono::seconds(10 + number / 2 * 2 + number % 2)));
  REQUIRE(ledger.flush().ok());
}

TEST_CASE("A file becomes an older one as soon as it has its full size, also when another arbiter goes on") {
  const std::uint64_t grant = format_record(lease(true, 10s)).size();
  const std::uint64_t release = format_record(lease(false, 11s)).size();
  for (const bool full : {true, false}) {
    Folder folder;
    const Ledger::Limits limits{.size = grant + release + (full ? 0 : 1), .files = 3, .waiting = 4096};
    {
      Ledger ledger(limits, even_ones_live);
      begin(ledger, folder);
      ledger.append(lease(true, 10s));
      REQUIRE(ledger.flush().ok());
      CHECK(folder.names().size() == 1);
    }
    CHECK(std::filesystem::file_size(folder.file()) == grant);  // nothing is added after a complete line
    Ledger ledger(limits, even_ones_live);
    begin(ledger, folder);
    ledger.append(lease(false, 11s));
    REQUIRE(ledger.flush().ok());
    CHECK(folder.names().size() == (full ? 2 : 1));
    if (full) CHECK(std::filesystem::file_size(folder.file(".1")) == grant + release);
  }
}

TEST_CASE("A new file begins with the checkpoint, and its size counts") {
  Folder folder;
  Ledger ledger({.size = 1000, .files = 3, .waiting = 4096}, even_ones_live);
  begin(ledger, folder);
  ledger.append(kBoot);
  ledger.append(job_record(1s, 1, 9));
  int number = 0;
  while (folder.names().size() == 1) write_line(ledger, number++);
  const std::uint64_t begun = std::filesystem::file_size(folder.file());
  REQUIRE(begun > 100);
  std::uint64_t before = 0;
  while (folder.names().size() == 2) {
    before = std::filesystem::file_size(folder.file());
    write_line(ledger, number++);
  }
  CHECK(before < 1000);
  CHECK(before + line_size() >= 1000);
  CHECK(std::filesystem::file_size(folder.file(".1")) >= 1000);
  CHECK(std::filesystem::file_size(folder.file(".1")) < 1000 + line_size());
}

TEST_CASE("Wherever a change of files fails, the ledger stays complete, reports this, and tries later") {
  const auto [failing, named] = GENERATE(table<std::string, std::string>({{"open ledger.new", "ledger.new"},
                                                                          {"write ledger.new", "ledger.new"},
                                                                          {"link ledger.1", "ledger.1"},
                                                                          {"rename ledger.2", "ledger.2"},
                                                                          {"unlink ledger.2", "ledger.2"},
                                                                          {"rename ledger", "ledger"}}));
  INFO(failing);
  Folder folder;
  NamedCalls::State state;
  Ledger ledger({.size = 2000, .files = 3, .waiting = 4096}, even_ones_live,
                std::make_unique<NamedCalls>(state));
  begin(ledger, folder);
  ledger.append(kBoot);
  ledger.append(job_record(1s, 1, 9));
  // The removal of the oldest file needs three files; the other calls need two files.
  const std::size_t files = failing == "unlink ledger.2" ? 3 : 2;
  int number = 0;
  while (folder.names().size() < files) write_line(ledger, number++);
  state.failing.insert(failing);
  const unsigned begun = state.begun;
  while (state.begun == begun) write_line(ledger, number++);
  CHECK(ledger.take_complaints() ==
        std::vector<std::string>{
            folder.path + "/" + named +
            ": Input/output error; no new ledger file can be started yet, and the current one grows"});
  const auto told_of = [&] {
    Texts texts;
    REQUIRE(read_ledger(folder.file(), Extent::all_files, texts).ok());
    std::size_t grants = 0;
    bool in_checkpoint = false;
    for (const std::string& text : texts)
      replay_ledger(text, [&](const Record& record) {
        if (std::holds_alternative<CheckpointRecord>(record.what)) in_checkpoint = true;
        if (std::holds_alternative<CompleteRecord>(record.what)) in_checkpoint = false;
        if (std::holds_alternative<LeaseRecord>(record.what) && !in_checkpoint) ++grants;
      });
    return grants;
  };
  if (files == 2) CHECK(told_of() == static_cast<std::size_t>(number));
  for (const std::string& name : folder.names()) CHECK_FALSE(name.ends_with(".new"));
  CHECK(std::filesystem::file_size(folder.file()) >= 2000);
  CHECK(std::filesystem::hard_link_count(folder.file()) == 1);

  // The next try comes only when the file has grown by an eighth of its size.
  const std::uint64_t size = std::filesystem::file_size(folder.file());
  while (state.begun == begun + 1) write_line(ledger, number++);
  const std::uint64_t grown = std::filesystem::file_size(folder.file()) - size;
  CHECK(grown >= 250);
  CHECK(grown < 250 + line_size());
  CHECK(ledger.take_complaints().size() == 1);
  state.failing.clear();
  while (state.begun == begun + 2) write_line(ledger, number++);
  CHECK(ledger.take_complaints().empty());
  CHECK(std::filesystem::file_size(folder.file()) < 1000);
  CHECK(folder.names() == std::vector<std::string>{"ledger", "ledger.1", "ledger.2"});
  if (files == 2) CHECK(told_of() == static_cast<std::size_t>(number));
  CHECK(lease_time(folder) == std::chrono::seconds(number / 2));
}

TEST_CASE("A checkpoint that replaces lost records is tried again soon, until it is written") {
  Folder folder;
  struct Calls : NamedCalls {
    using NamedCalls::NamedCalls;
    ssize_t write(int file, const void* bytes, std::size_t size) override {
      return fails("write", "ledger") ? -1 : FileCalls::write(file, bytes, size);
    }
  };
  NamedCalls::State state;
  Ledger ledger({.size = 1 << 16, .files = 3, .waiting = 300}, even_ones_live,
                std::make_unique<Calls>(state));
  begin(ledger, folder);
  ledger.append(kBoot);
  state.failing = {"write ledger"};
  for (int i = 0; i < 20; ++i) ledger.append(lease(i % 2 == 0, std::chrono::seconds(10 + i)));
  CHECK_FALSE(ledger.flush().ok());
  state.failing = {"open ledger.new"};
  CHECK(ledger.flush().ok());
  write_line(ledger, 20);  // also writes a LostRecord
  CHECK(state.begun == 1);
  const auto lines_until_next = [&](int number) {
    const unsigned begun = state.begun;
    int lines = 0;
    for (; state.begun == begun && lines < 1000; ++lines) write_line(ledger, number + lines);
    return lines;
  };
  CHECK(lines_until_next(21) == 1);  // the retry comes after size/1024 bytes, less than one line
  state.failing.clear();
  REQUIRE(lines_until_next(22) == 1);
  CHECK(folder.names().size() == 2);
  // The file has reached its maximum size again and cannot be replaced. No earlier replacement is in
  // progress.
  state.failing = {"open ledger.new"};
  const int lines = lines_until_next(24);
  CHECK(lines > 500);
  CHECK(lines_until_next(24 + lines) > 50);
}

TEST_CASE("Queued records up to the limit are written, and further records are lost") {
  Folder folder;
  Faults faults;
  const std::size_t size = format_record(lease(true, 10s)).size();
  const bool fits = GENERATE(true, false);
  Ledger ledger({.size = 1 << 20, .files = 3, .waiting = 2 * size + (fits ? 1 : 0)}, even_ones_live,
                std::make_unique<FaultyCalls>(faults));
  begin(ledger, folder);
  faults = {.call = 0, .fails_at = 0, .for_good = true};
  for (int i = 0; i < 3; ++i) ledger.append(lease(true, std::chrono::seconds(10 + 2 * i), 1));
  CHECK(ledger.unwritten() == (fits ? 3 : 2) * size);
  CHECK(ledger.take_complaints().size() == (fits ? 0 : 1));
}

TEST_CASE("Calls that a signal has cut short are made again, and a write of nothing is a full disk") {
  struct Interrupted : FileCalls {
    bool reads = false, writes = false;  // the next read or write is cut short
    bool full = false;
    ssize_t read(int file, void* bytes, std::size_t size) override {
      return cut(reads) ? -1 : FileCalls::read(file, bytes, size);
    }
    ssize_t write(int file, const void* bytes, std::size_t size) override {
      if (full) return 0;
      return cut(writes) ? -1 : FileCalls::write(file, bytes, size);
    }
    static bool cut(bool& next) {
      errno = EINTR;
      return std::exchange(next, false);
    }
  };
  Folder folder;
  auto owned = std::make_unique<Interrupted>();
  Interrupted& calls = *owned;
  Ledger ledger(kSmall, even_ones_live, std::move(owned));
  begin(ledger, folder);
  ledger.append(kBoot);
  calls.writes = true;
  CHECK(ledger.flush().ok());
  CHECK(ledger.unwritten() == 0);
  ledger.append(kBoot);
  calls.full = true;
  CHECK(ledger.flush().code() == ENOSPC);
  calls.full = false;
  CHECK(ledger.flush().ok());
  calls.reads = true;
  Texts texts;
  CHECK(read_ledger(folder.file(), Extent::all_files, texts, calls).ok());
  CHECK(texts == Texts{format_record(kBoot) + format_record(kBoot)});
}

TEST_CASE("Only files with names that the ledger gives are its older files") {
  Folder folder;
  for (const char* end :
       {"", ".1", ".3", ".20", ".999", ".0", ".01", ".1000", ".1x", ".x", ".", ".new", ".1.1"})
    std::ofstream(folder.file(end)) << "x";
  std::ofstream(folder.path + "/other.2") << "x";
  CHECK(older_files(folder.file()) == std::set<unsigned>{1, 3, 20, 999});
  CHECK(older_files(folder.path + "/none/ledger").empty());
}

TEST_CASE("Files are read back to the newest that begins with a whole checkpoint, all in their order") {
  Folder folder;
  const auto write = [&](const std::string& end, const std::vector<Record>& records) {
    std::ofstream file(folder.file(end));
    for (const Record& record : records) file << format_record(record);
  };
  const auto texts = [&](Extent extent) {
    Texts all;
    REQUIRE(read_ledger(folder.file(), extent, all).ok());
    std::string order;  // the order of the files, as the hours of their first records
    for (const std::string& text : all)
      order += std::to_string(parse_record(text.substr(0, text.find('\n')))->at / 1h);
    return order;
  };
  const auto checkpoint = [](Nanoseconds at) { return Record{.at = at, .what = CheckpointRecord{}}; };
  const auto complete = [](Nanoseconds at) { return Record{.at = at, .what = CompleteRecord{}}; };
  write(".5", {job_record(1h, 1, 9)});
  write(".2", {checkpoint(2h), job_record(2h, 1, 9), complete(2h), lease(true, 2h)});
  write(".1", {job_record(3h, 1, 9), checkpoint(3h), complete(3h)});  // wrong: the checkpoint is not the
                                                                      // first record
  write("", {checkpoint(4h), job_record(4h, 1, 9)});                  // an incomplete file
  CHECK(texts(Extent::since_checkpoint) == "234");
  CHECK(texts(Extent::all_files) == "1234");
  write("", {checkpoint(4h), job_record(4h, 1, 9), complete(4h)});
  CHECK(texts(Extent::since_checkpoint) == "4");
  // A file of a newer version counts as complete, too, even if its checkpoint has records of an unknown kind.
  const std::string kind = " 1 frobnicated 1";
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(kind));
  std::ofstream(folder.file()) << format_record(checkpoint(5h)) << checksum << kind << "\n"
                               << format_record(complete(5h));
  CHECK(texts(Extent::since_checkpoint) == "5");
}

TEST_CASE("An arbiter goes on from several files, in their order, and its next checkpoint has them all") {
  Folder folder;
  int turns = 0;
  {
    Ledger ledger(kSmall, even_ones_live);
    begin(ledger, folder);
    ledger.append(kBoot);
    ledger.append(job_record(1s, 1, 9));
    while (folder.names().size() < 3) turns = write_turns(ledger, turns + 1, 1) - 1;
  }
  std::filesystem::resize_file(folder.file(), 30);  // a power failure has truncated the newest file
  History history;
  Ledger ledger(kSmall, even_ones_live);
  Ledger::Replay replay;
  REQUIRE(ledger
              .open(
                  folder.file(), [&](const Record& record) { history.add(record); }, replay)
              .ok());
  CHECK(replay.records > 10);
  CHECK(replay.damaged == 1);
  CHECK(history.recovered.leases.of_step(kStep, {}) == std::chrono::seconds(turns));
  write_turns(ledger, turns + 1, 30);
  CHECK(lease_time(folder) == std::chrono::seconds(turns + 30));
}

TEST_CASE("A named file is read whole, also through a link, or the failure names it") {
  Folder folder;
  const std::string text = format_record(kBoot);
  std::ofstream(folder.file()) << text;
  std::filesystem::create_symlink(folder.file(), folder.path + "/link");
  std::string read = "before ";
  CHECK(read_file(folder.path + "/link", read).ok());
  CHECK(read == "before " + text);
  CHECK(read_file(folder.path + "/none", read).message() == folder.path + "/none: No such file or directory");
  // The arbiter never opens a link as its ledger, since another user may have made the link.
  Ledger ledger({}, even_ones_live);
  Ledger::Replay replay;
  CHECK(ledger
            .open(
                folder.path + "/link", [](const Record&) {}, replay)
            .code() == ELOOP);
}

// Writes older files with these numbers. The text of each file is its number.
void write_older(const Folder& folder, const std::set<unsigned>& numbers) {
  for (const unsigned number : numbers) std::ofstream(older_file(folder.file(), number)) << number;
}
// The older files after a new file was begun, as "number: text".
std::vector<std::string> after_change(const Folder& folder, unsigned files) {
  {
    Ledger ledger({.size = 10, .files = files, .waiting = 4096}, even_ones_live);
    begin(ledger, folder);
    ledger.append(kBoot);
    CHECK(ledger.flush().ok());
    CHECK(ledger.take_complaints().empty());
  }
  std::vector<std::string> found;
  for (const unsigned number : older_files(folder.file())) {
    std::string text;
    REQUIRE(read_file(older_file(folder.file(), number), text).ok());
    found.push_back(std::to_string(number) + ": " + (text.size() > 10 ? "the last" : text));
  }
  return found;
}

TEST_CASE("Older files are renamed up to the first gap, and files beyond the limit are removed") {
  Folder folder;
  SECTION("a gap") {
    write_older(folder, {1, 3, 4});
    CHECK(after_change(folder, 6) == Texts{"1: the last", "2: 1", "3: 3", "4: 4"});
  }
  SECTION("none is free") {
    write_older(folder, {1, 2, 3});
    CHECK(after_change(folder, 4) == Texts{"1: the last", "2: 1", "3: 2"});
  }
  SECTION("the limit was higher") {
    write_older(folder, {1, 2, 3, 4, 7});
    CHECK(after_change(folder, 3) == Texts{"1: the last", "2: 1"});
  }
  SECTION("the limit was higher, and there is room") {
    write_older(folder, {2, 5});
    CHECK(after_change(folder, 4) == Texts{"1: the last", "2: 2"});
  }
}

TEST_CASE("An arbiter that died in a change of files leaves no record twice, and no obstacle") {
  Folder folder;
  std::ofstream(folder.file()) << format_record(job_record(1s, 1, 9));
  write_older(folder, {2});
  std::ofstream(folder.file(".new")) << "the begin of a checkpoint";
  SECTION("it had given the file its second name") {
    std::filesystem::create_hard_link(folder.file(), folder.file(".1"));
    CHECK(after_change(folder, 4) == Texts{"1: the last", "2: 2"});
  }
  SECTION("it had not") { CHECK(after_change(folder, 4) == Texts{"1: the last", "2: 2"}); }
  CHECK(folder.names() == Texts{"ledger", "ledger.1", "ledger.2"});
}

TEST_CASE("A second name left by a dead arbiter is an obstacle if it cannot be removed") {
  Folder folder;
  std::ofstream(folder.file()) << format_record(job_record(1s, 1, 9));
  std::filesystem::create_hard_link(folder.file(), folder.file(".1"));
  NamedCalls::State state;
  state.failing = {"unlink ledger.1"};
  Ledger ledger({.size = 10, .files = 4, .waiting = 4096}, even_ones_live,
                std::make_unique<NamedCalls>(state));
  begin(ledger, folder);
  ledger.append(kBoot);
  REQUIRE(ledger.flush().ok());
  const auto complaints = ledger.take_complaints();
  REQUIRE(complaints.size() == 1);
  CHECK(complaints[0].find("ledger.1: Input/output error") != std::string::npos);
}

}  // namespace
}  // namespace sharedgpu
