// SPDX-License-Identifier: Apache-2.0
// The ledger in several files: what a new one begins with, and that nothing is missing wherever its making
// stops.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "arbiter/ledger/history.h"
#include "arbiter/ledger/lease_table.h"
#include "arbiter/ledger/ledger.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;
using Texts = std::vector<std::string>;

const GpuUuid kGpus[] = {{{1}}, {{2}}};
const StepName kStep{.job = 9, .step = 0};
const Record kBoot{.at = 1s, .what = BootRecord{.boot_id = "b-1", .booted = 1700000000s}};

std::uint64_t even_ones_live(pid_t pid) { return pid % 2 == 0 ? 1 : 0; }

Record job_record(Nanoseconds at, std::uint64_t id, std::uint32_t job) {
  TenantRecord record{.tenant = TenantId{id}, .name = {}, .uid = 1000};
  record.name.job = job;
  return {.at = at, .what = record};
}
Record lease(bool grant, Nanoseconds at, std::uint64_t tenant = 1, StepName step = kStep,
             const GpuUuid& gpu = kGpus[0]) {
  return {.at = at,
          .what = LeaseRecord{.grant = grant,
                              .epoch = Epoch{static_cast<std::uint64_t>(at.count())},
                              .key = {.tenant = TenantId{tenant}, .gpu = gpu, .step = step}}};
}

// All that an arbiter would find in it.
std::string told(History history, Nanoseconds now) {
  std::string text;
  for (const Record& record : history.finish({.boot_id = "b-1"}, even_ones_live, now))
    text += format_record(record);
  for (const auto& [id, tenant] : history.tenants.all()) {
    text += format_record({.at = {}, .what = OptionsRecord{.tenant = id, .options = tenant.options}});
    text += tenant.label() + " " + std::to_string(tenant.uid) + " " + std::to_string(tenant.anchored) + " " +
            std::to_string(history.recovered.leases.of_tenant(id, now).count()) + "\n";
    for (const auto& [step, time] : history.recovered.leases.steps_of(id, now))
      text += " step " + std::to_string(step.step) + ": " + std::to_string(time.count()) + " " +
              std::to_string(history.recovered.leases.of_step(step, now).count()) + "\n";
    for (const StepName& step : {StepName{}, kStep})
      text += format_record(
          {.at = {},
           .what = UsedRecord{.tenant = id, .step = step, .figures = history.figures.of(id, step)}});
  }
  for (const auto& [key, open] : history.recovered.leases.open())
    text += format_record(
        {.at = open.since, .what = LeaseRecord{.grant = true, .epoch = open.epoch, .key = key}});
  for (const auto& [id, placement] : history.recovered.placements)
    text += "placed " + std::to_string(id.value) + " " + std::to_string(placement.units) + " " +
            std::to_string(placement.gpus.size()) + " " + std::to_string(history.keepers.at(id).size()) +
            "\n";
  text += std::to_string(history.last_session.value) + " " +
          std::to_string(history.recovered.last_epoch.value) + " " +
          std::to_string(history.tenants.last().value) + " " +
          std::to_string(history.recovered.expected_sessions) + " " +
          std::to_string(history.recovered.last_record.count());
  for (std::uint32_t pid = 0; pid < 8; ++pid)
    for (const GpuUuid& gpu : kGpus) text += " " + std::to_string(history.take_session(pid, 1, gpu).id.value);
  return text;
}

// Two jobs, a run and a process.
std::vector<Record> four_tenants() {
  TenantRecord run{.tenant = TenantId{3}, .name = {}, .uid = 1};
  run.name.run.bytes[0] = 3;
  TenantRecord process{.tenant = TenantId{4}, .name = {}, .uid = 2};
  process.name.process = {.pid = 4, .started = 1};
  return {kBoot,
          job_record(1s, 1, 1),
          job_record(1s, 2, 2),
          {.at = 1s, .what = run},
          {.at = 1s, .what = process}};
}

Record any_record(std::mt19937& random, Nanoseconds at) {
  auto upto = [&](unsigned most) { return std::uniform_int_distribution<unsigned>(0, most)(random); };
  const TenantId tenant{upto(3) + 1};
  const SessionId session{upto(7) + 1};
  const GpuUuid& gpu = kGpus[upto(1)];
  switch (upto(11)) {
    case 0: {
      OptionsRecord record{.tenant = tenant, .options = {}};
      record.options.units = upto(8);
      return {.at = at, .what = record};
    }
    case 1: {
      PlaceRecord record{.tenant = tenant, .pid = upto(7), .started = 1, .units = upto(3) + 1, .gpus = {}};
      record.gpus.count = 1 + upto(1);
      std::copy(kGpus, kGpus + record.gpus.count, record.gpus.gpu);
      return {.at = at, .what = record};
    }
    case 2:
      return {.at = at,
              .what = SessionRecord{
                  .session = session, .tenant = tenant, .step = kStep, .pid = upto(7), .started = 1}};
    case 3:
      return {.at = at, .what = AttachRecord{.session = session, .gpu = gpu}};
    case 4:
      return {.at = at, .what = GoneRecord{.session = session}};
    case 5:
      return {.at = at,
              .what = UsedRecord{.tenant = tenant,
                                 .step = upto(1) == 0 ? StepName{} : kStep,
                                 .figures = {.waited = at, .handoffs = upto(9), .footprint = mebibytes(1)}}};
    default: {
      const bool is_job = tenant.value < 3;  // its steps are its own
      const StepName step{.job = is_job ? static_cast<std::uint32_t>(tenant.value) : 0,
                          .step = is_job ? upto(1) : 0};
      return lease(upto(1) == 0, at, tenant.value, step, gpu);
    }
  }
}

TEST_CASE("A checkpoint tells a new history what the old one knew") {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    History old;
    for (const Record& record : four_tenants()) old.add(record);
    Nanoseconds now = 1s;
    auto next = [&] { return any_record(random, now += 1ms); };
    for (int i = 0; i < 60; ++i) old.add(next());
    History fresh;
    for (const Record& record : old.checkpoint(even_ones_live)) {
      const std::string line = format_record(record);
      const auto read = parse_record(std::string_view(line).substr(0, line.size() - 1));
      REQUIRE(read);
      fresh.add(*read);
    }
    INFO("seed " << seed);
    REQUIRE(told(fresh, now) == told(old, now));
    for (int i = 0; i < 60; ++i) {
      const Record record = next();
      old.add(record);
      fresh.add(record);
    }
    REQUIRE(told(fresh, now + 5s) == told(old, now + 5s));
    // A checkpoint of which only a part was read, after all that it stands for, changes nothing.
    const std::vector<Record> again = old.checkpoint(even_ones_live);
    for (std::size_t i = 0; i < again.size() / 2; ++i) fresh.add(again[i]);
    REQUIRE(told(fresh, now + 9s) == told(old, now + 9s));
  }
}

TEST_CASE("Numbers are not given twice, and jobs that are long over are left out") {
  History old;
  old.add(kBoot);
  old.add(job_record(1s, 1, 11));
  old.add(lease(true, 1s));
  old.add(lease(false, 2s));
  old.add(job_record(24h * 61, 2, 12));
  TenantRecord run{.tenant = TenantId{7}, .name = {}, .uid = 1};
  run.name.run.bytes[0] = 1;
  old.add({.at = 24h * 61, .what = run});
  old.add({.at = 24h * 61, .what = EndRecord{.tenant = TenantId{7}}});
  History fresh;
  for (const Record& record : old.checkpoint(even_ones_live)) fresh.add(record);
  CHECK(fresh.tenants.find(TenantId{1}) == nullptr);
  CHECK(fresh.tenants.find(TenantId{2}) != nullptr);
  TenantName name;
  name.job = 13;
  CHECK(fresh.tenants.get(name, 1).id == TenantId{8});
}

// ---- files ----

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

}  // namespace
}  // namespace sharedgpu
