// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/ledger.h"

#include <sys/resource.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "arbiter/ledger/history.h"
#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

struct Folder : test::TemporaryFolder {
  std::string file() const { return path + "/ledger"; }
};

const GpuUuid kGpu{{0xab, 1}};

Record lease(bool grant, Nanoseconds at, std::uint64_t tenant = 1, std::uint32_t job = 9) {
  return {
      .at = at,
      .what = LeaseRecord{.grant = grant,
                          .epoch = Epoch{4},
                          .key = {.tenant = TenantId{tenant}, .gpu = kGpu, .step = {.job = job, .step = 0}}}};
}
Record tenant(std::uint64_t id, const TenantName& name) {
  return {.at = 1s, .what = TenantRecord{.tenant = TenantId{id}, .name = name, .uid = 1000}};
}
TenantName job(std::uint32_t number) {
  TenantName name;
  name.job = number;
  return name;
}

std::uint64_t nobody_lives(pid_t) { return 0; }

std::string text_of(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) text += format_record(record);
  return text;
}

Record placed(std::uint64_t tenant, std::uint32_t pid, std::uint64_t started) {
  PlaceRecord place{.tenant = TenantId{tenant}, .pid = pid, .started = started, .units = 3, .gpus = {}};
  place.gpus.count = 2;
  place.gpus.gpu[0] = kGpu;
  place.gpus.gpu[1] = GpuUuid{{0xcd}};
  return {.at = 2s, .what = place};
}

std::vector<Record> all_kinds() {
  TenantName run;
  run.run.bytes[0] = 7;
  TenantName process;
  process.process = {.pid = 77, .started = 1234567};
  OptionsRecord options{.tenant = TenantId{1}, .options = {}};
  options.options.memory = gibibytes(3);
  options.options.priority = -5;
  options.options.deadline = 7s;
  options.options.backend = Backend::managed;
  options.options.backend_given = 1;
  options.options.gpus = 2;
  return {
      {.at = 1s, .what = BootRecord{.boot_id = "b-1", .booted = 1700000000s}},
      tenant(1, job(9)),
      tenant(2, run),
      tenant(3, process),
      {.at = 2s, .what = options},
      {.at = 2s,
       .what = SessionRecord{.session = SessionId{5},
                             .tenant = TenantId{1},
                             .step = {.job = 9, .step = 0xfffffffb},
                             .pid = 44,
                             .started = 99}},
      {.at = 3s, .what = AttachRecord{.session = SessionId{5}, .gpu = kGpu}},
      lease(true, 4s),
      lease(false, 9s),
      {.at = 9s, .what = GoneRecord{.session = SessionId{5}}},
      {.at = 9s, .what = EndRecord{.tenant = TenantId{3}}},
      placed(1, 44, 99),
      {.at = 9s, .what = CheckpointRecord{.tenant = TenantId{3}, .session = SessionId{5}, .epoch = Epoch{4}}},
      {.at = 9s, .what = CompleteRecord{}},
      {.at = 9s, .what = StepTimeRecord{.tenant = TenantId{1}, .step = {.job = 9, .step = 0}, .time = 5s}},
      {.at = 9s, .what = GpuTimeRecord{.tenant = TenantId{1}, .gpu = kGpu, .time = 5s}},
      {.at = 9s,
       .what = UsedRecord{.tenant = TenantId{1},
                          .step = {.job = 9, .step = 0},
                          .figures = {.moved = {.evicted = mebibytes(1), .restored = mebibytes(2)},
                                      .waited = 3s,
                                      .overuse = 4s,
                                      .handoffs = 5,
                                      .footprint = mebibytes(6),
                                      .resident = mebibytes(7),
                                      .backends = 5}}},
      {.at = 9s, .what = BeginRecord{.tenant = TenantId{1}}},
      {.at = 9s, .what = ClassRecord{.tenant = TenantId{1}, .job_class = {"long", "", 0}}},
      {.at = 9s, .what = ClassRecord{.tenant = TenantId{1}, .job_class = {"", "high", 3}}},
      {.at = 9s,
       .what = SessionRecord{.session = SessionId{6},
                             .tenant = TenantId{1},
                             .step = {.job = 9, .step = 0},
                             .pid = 45,
                             .started = 99,
                             .task = 3}},
      {.at = 9s, .what = OverRecord{.tenant = TenantId{1}}},
      {.at = 9s, .what = SeenRecord{}},
      {.at = 9s, .what = LostRecord{.records = 12}}};
}

TEST_CASE("A process of unknown state keeps its session and its placement") {
  const auto unknown = [](pid_t) { return std::optional<std::uint64_t>(); };
  History history;
  history.add({.at = 1s, .what = BootRecord{.boot_id = "b-1"}});
  history.add({.at = 2s, .what = TenantRecord{.tenant = TenantId{1}, .name = job(7), .uid = 1000}});
  history.add({.at = 3s,
               .what = PlaceRecord{.tenant = TenantId{1}, .pid = 43, .started = 99, .units = 2, .gpus = {}}});
  history.add({.at = 4s,
               .what = SessionRecord{.session = SessionId{5},
                                     .tenant = TenantId{1},
                                     .step = {.job = 7, .step = 0},
                                     .pid = 44,
                                     .started = 100}});
  History after;
  for (const Record& record : history.checkpoint(unknown)) after.add(record);
  after.finish({.boot_id = "b-1"}, unknown, 20s);
  CHECK(after.keepers.at(TenantId{1}).size() == 1);
  CHECK(after.take_session(44, 100, {}).id == SessionId{5});
}

TEST_CASE("A lease whose release was damaged ends before the damage, as soon as it is granted again") {
  const LeaseKey key{.tenant = TenantId{1}, .gpu = kGpu, .step = {.job = 9, .step = 0}};
  const auto lease = [&](Nanoseconds at, bool grant, std::uint64_t epoch) {
    return format_record({.at = at, .what = LeaseRecord{.grant = grant, .epoch = Epoch{epoch}, .key = key}});
  };
  const std::string seen = format_record({.at = 19s, .what = SeenRecord{}});
  const std::string later = format_record({.at = 500s, .what = SeenRecord{}});
  History history;
  const auto add = [&](const Record& record) { history.add(record); };
  const Ledger::Replay replay =
      replay_ledger(lease(10s, true, 3) + seen + "00000000 damaged\n" + later + lease(1000s, true, 4) +
                        lease(1010s, true, 4) + lease(1020s, false, 4),
                    add);
  CHECK(replay.damaged == 1);
  CHECK(history.recovered.leases.of_step(key.step, 2000s) == 29s);
}

TEST_CASE("Records are read as they were written") {
  for (const Record& record : all_kinds()) {
    std::string line = format_record(record);
    REQUIRE(line.back() == '\n');
    line.pop_back();
    auto read = parse_record(line);
    REQUIRE(read);
    CHECK(format_record(*read) == line + "\n");
  }
  CHECK(crc32c("123456789") == 0xe3069283);  // the published check value of CRC-32C
}

TEST_CASE("A line that was changed anywhere is rejected") {
  for (const Record& record : all_kinds()) {
    std::string line = format_record(record);
    line.pop_back();
    for (std::size_t i = 0; i < line.size(); ++i) {
      std::string changed = line;
      changed[i] = changed[i] == '1' ? '2' : '1';
      if (changed != line) CHECK_FALSE(parse_record(changed));
      CHECK_FALSE(parse_record(line.substr(0, i)));
    }
    CHECK_FALSE(parse_record(line + " 1"));
  }
}

TEST_CASE("A torn tail and damage in the middle cost only themselves") {
  std::string text = text_of({lease(true, 1s), lease(false, 2s), lease(true, 3s)});
  std::size_t second = text.find('\n') + 1;
  unsigned seen = 0;
  unsigned lost = 0;
  auto count = [&](const Record& record) {
    ++(std::holds_alternative<LostRecord>(record.what) ? lost : seen);
  };
  SECTION("torn") {
    auto replay = replay_ledger(text.substr(0, text.size() - 1), count);
    CHECK(replay.records == 2);
    CHECK(replay.damaged == 1);
  }
  SECTION("damaged") {
    text[second + 12] ^= 1;
    auto replay = replay_ledger(text, count);
    CHECK(replay.records == 2);
    CHECK(replay.damaged == 1);
  }
  CHECK(seen == 2);
  CHECK(lost == 1);
}

TEST_CASE("The file is appended to, also after a torn tail") {
  Folder folder;
  Ledger::Replay replay;
  auto ignore = [](const Record&) {};
  {
    Ledger ledger({}, nobody_lives);
    REQUIRE(ledger.open(folder.file(), ignore, replay).ok());
    ledger.append(lease(true, 1s));
    CHECK(ledger.flush().ok());
    CHECK(ledger.unwritten() == 0);
  }
  std::ofstream(folder.file(), std::ios::app) << "0123abcd 55 gra";
  {
    Ledger ledger({}, nobody_lives);
    REQUIRE(ledger.open(folder.file(), ignore, replay).ok());
    CHECK(replay.records == 1);
    CHECK(replay.damaged == 1);
    ledger.append(lease(false, 2s));
    CHECK(ledger.flush().ok());
  }
  Ledger ledger({}, nobody_lives);
  std::vector<Record> seen;
  REQUIRE(ledger
              .open(
                  folder.file(), [&](const Record& r) { seen.push_back(r); }, replay)
              .ok());
  REQUIRE(seen.size() == 3);
  CHECK(std::holds_alternative<LostRecord>(seen[1].what));
  CHECK(seen[2].at == 2s);
}

TEST_CASE("A path that cannot be written is an error that names it") {
  Ledger ledger({}, nobody_lives);
  Ledger::Replay replay;
  const Status opened = ledger.open(
      "/nonexistent/ledger", [](const Record&) {}, replay);
  CHECK(opened.code() == ENOENT);
  CHECK(opened.message() == "/nonexistent/ledger: No such file or directory");
}

TEST_CASE("A full disk keeps the records in memory until there is room") {
  Folder folder;
  Ledger ledger({}, nobody_lives);
  Ledger::Replay replay;
  REQUIRE(ledger
              .open(
                  folder.file(), [](const Record&) {}, replay)
              .ok());
  // A limit on the file's size has the effect of a full disk: the write stops in the middle of a record.
  auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old = {};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  rlimit small = {.rlim_cur = 100, .rlim_max = old.rlim_max};
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  for (int i = 0; i < 10; ++i) ledger.append(lease(i % 2 == 0, std::chrono::seconds(i)));
  const Status failure = ledger.flush();
  setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);
  CHECK(failure.code() == EFBIG);
  CHECK(failure.message() == folder.file() + ": File too large");
  CHECK(ledger.unwritten() > 0);
  CHECK(ledger.flush().ok());
  std::ifstream file(folder.file());
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  replay = replay_ledger(text, [](const Record&) {});
  CHECK(replay.records == 10);
  CHECK(replay.damaged == 0);
}

// ---- use by a new arbiter ----

std::uint64_t only_44_lives(pid_t pid) { return pid == 44 ? 99 : 0; }

TEST_CASE("Open leases and living sessions are expected back") {
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);  // the records until the grant
  for (const Record& record : records) history.add(record);
  auto news = history.finish({.boot_id = "b-1"}, only_44_lives, 20s);
  CHECK(news.size() == 3);  // records of the boot, of the run's end and of the process's end
  CHECK(history.recovered.leases.holds(TenantId{1}));
  CHECK(history.recovered.expected_sessions == 1);
  CHECK(history.recovered.last_record == 4s);
  CHECK(history.recovered.last_epoch == Epoch{4});
  CHECK(history.last_session == SessionId{5});
  CHECK(history.tenants.find(job(9))->options.memory == gibibytes(3));
  CHECK_FALSE(history.take_session(44, 98, {}).id);
  CHECK(history.take_session(44, 99, {}).expected);
  CHECK_FALSE(history.take_session(44, 99, {}).id);
}

TEST_CASE("A process with two GPUs finds the session of each again") {
  const GpuUuid other{{9}};
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);
  for (std::uint64_t id : {6, 7})
    records.push_back({.at = 5s,
                       .what = SessionRecord{.session = SessionId{id},
                                             .tenant = TenantId{1},
                                             .step = {.job = 9, .step = 0xfffffffb},
                                             .pid = 44,
                                             .started = 99}});
  records.push_back({.at = 5s, .what = AttachRecord{.session = SessionId{6}, .gpu = other}});
  for (const Record& record : records) history.add(record);
  history.finish({.boot_id = "b-1"}, only_44_lives, 20s);
  CHECK(history.recovered.expected_sessions == 2);
  CHECK(history.take_session(44, 99, other).id == SessionId{6});
  // The previous arbiter died before it recorded that session 7 had a GPU.
  CHECK(history.take_session(44, 99, other).id == SessionId{7});
  CHECK_FALSE(history.take_session(44, 99, other).id);
  CHECK(history.take_session(44, 99, kGpu).id == SessionId{5});
}

TEST_CASE("Sessions of dead processes are not expected back") {
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);
  for (const Record& record : records) history.add(record);
  auto news = history.finish(
      {.boot_id = "b-1"}, [](pid_t) { return std::uint64_t{100}; }, 20s);
  CHECK(news.size() == 4);
  CHECK(history.recovered.expected_sessions == 0);
}

TEST_CASE("A placement lasts as long as a process that requested it") {
  auto kept = [](const std::vector<Record>& records, const std::string& boot = "b-1") {
    History history;
    for (const Record& record : records) history.add(record);
    history.finish({.boot_id = boot}, only_44_lives, 20s);
    CHECK(history.keepers.size() == history.recovered.placements.size());
    return history.recovered.placements;
  };
  const Record boot{.at = 1s, .what = BootRecord{.boot_id = "b-1"}};
  const Placement placement =
      kept({boot, tenant(1, job(9)), placed(1, 7, 5), placed(1, 44, 99)}).at(TenantId{1});
  CHECK(placement.units == 3);
  CHECK(placement.gpus == std::vector<GpuUuid>{kGpu, GpuUuid{{0xcd}}});
  CHECK(kept({boot, tenant(1, job(9)), placed(1, 7, 5), placed(1, 44, 98)}).empty());
  CHECK(kept({boot, tenant(1, job(9)), placed(1, 44, 99)}, "b-2").empty());
  // A living process with a session keeps the placement, too.
  const Record session{.at = 3s,
                       .what = SessionRecord{.session = SessionId{5},
                                             .tenant = TenantId{1},
                                             .step = {.job = 9, .step = 0},
                                             .pid = 44,
                                             .started = 99}};
  CHECK(kept({boot, tenant(1, job(9)), placed(1, 7, 5), session}).size() == 1);
  CHECK(kept({boot, tenant(1, job(9)), session}).empty());
  // The end of the tenant ends its placement, even if the process lives.
  const Record end{.at = 3s, .what = EndRecord{.tenant = TenantId{1}}};
  CHECK(kept({boot, tenant(1, job(9)), placed(1, 44, 99), end}).empty());
}

TEST_CASE("Runs and processes without a living process are over, and jobs are not") {
  TenantName run;
  run.run.bytes[0] = 7;
  TenantName process;
  process.process = {.pid = 77, .started = 1234567};
  const Record boot{.at = 1s, .what = BootRecord{.boot_id = "b-1"}};
  // The user of the third tenant chose its GPUs, so the arbiter does not place it.
  TenantName choosy;
  choosy.run.bytes[0] = 8;
  Record kept = placed(3, 44, 99);
  std::get<PlaceRecord>(kept.what).gpus = {};
  const std::vector<Record> all{
      boot, tenant(1, run), tenant(2, process), tenant(3, choosy), tenant(4, job(9)), placed(1, 7, 5), kept};
  History history;
  for (const Record& record : all) history.add(record);
  // The result is the same if the next file of the ledger begins after these records.
  History after;
  for (const Record& record : history.checkpoint(only_44_lives)) after.add(record);
  for (History* each : {&history, &after}) {
    const std::vector<Record> news = each->finish({.boot_id = "b-1"}, only_44_lives, 20s);
    CHECK(std::ranges::count_if(news, [](const Record& record) {
            return std::holds_alternative<EndRecord>(record.what);
          }) == 2);
    CHECK(each->tenants.find(run) == nullptr);
    CHECK(each->tenants.find(process) == nullptr);
    CHECK(each->tenants.find(choosy) != nullptr);
    CHECK(each->tenants.find(job(9)) != nullptr);
    CHECK(each->recovered.placements.empty());
    CHECK(each->keepers.count(TenantId{3}) == 1);
  }
}

std::string line_of(const std::string& text) {
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%08x", crc32c(text));
  return checksum + text;
}

TEST_CASE("Boots, options and figures as older arbiters wrote them are read") {
  auto used = parse_record(line_of(" 5 used 1 9 0 1 2 3 4 5 6 7"));
  REQUIRE(used);
  CHECK(std::get<UsedRecord>(used->what).figures.resident == Bytes{7});
  CHECK(std::get<UsedRecord>(used->what).figures.backends == 0);

  auto boot = parse_record(line_of(" 5 boot 8de26f41"));
  REQUIRE(boot);
  CHECK(std::get<BootRecord>(boot->what).boot_id == "8de26f41");
  CHECK(std::get<BootRecord>(boot->what).booted == 0s);
  CHECK_FALSE(parse_record(line_of(" 5 boot")));
  CHECK_FALSE(parse_record(line_of(" 5 boot 8de26f41 x")));
  auto read = parse_record(line_of(" 5 options 1 2 3 4 5 6 7 1 1"));
  REQUIRE(read);
  CHECK(std::get<OptionsRecord>(read->what).options.backend_given == 1);
  CHECK(std::get<OptionsRecord>(read->what).options.gpus == 0);
}

TEST_CASE("An older arbiter can read the records of a newer one, unless a job uses a new feature") {
  OptionsRecord options;
  CHECK(format_record({.at = 5ns, .what = options}) == line_of(" 5 options 0 0 0 0 0 0 0 0 0") + "\n");
  options.brought = Bytes{7};
  CHECK(format_record({.at = 5ns, .what = options}) == line_of(" 5 options 0 0 0 0 0 0 0 0 0 0 7") + "\n");
}

TEST_CASE("The run of a job is over until the options of the next run, also in a checkpoint") {
  History history;
  const auto is_over = [](const History& each) { return each.tenants.all().at(TenantId{1}).over; };
  const auto kept = [&] {
    History fresh;
    for (const Record& record : History(history).checkpoint([](pid_t) { return 0u; })) fresh.add(record);
    return is_over(fresh);
  };
  history.add(tenant(1, job(9)));
  history.add({.at = 1s, .what = OptionsRecord{.tenant = TenantId{1}, .options = {}}});
  CHECK_FALSE(is_over(history));
  history.add({.at = 2s, .what = OverRecord{.tenant = TenantId{1}}});
  CHECK(is_over(history));
  CHECK(kept());
  history.add({.at = 3s, .what = OptionsRecord{.tenant = TenantId{1}, .options = {}}});
  CHECK_FALSE(is_over(history));
  CHECK_FALSE(kept());
}

TEST_CASE("The figures of a job that runs anew begin at zero, and other jobs keep theirs") {
  History history;
  for (const Record& record : {tenant(1, job(9)), tenant(2, job(10)), lease(true, 2s), lease(false, 5s),
                               lease(true, 2s, 2, 10), lease(false, 4s, 2, 10)})
    history.add(record);
  history.add(
      {.at = 5s,
       .what = UsedRecord{.tenant = TenantId{1}, .step = {.job = 9, .step = 0}, .figures = {.waited = 1s}}});
  history.add({.at = 6s, .what = BeginRecord{.tenant = TenantId{1}}});
  const LeaseBook& leases = history.recovered.leases;
  CHECK(leases.of_step({9, 0}, 9s) == 0s);
  CHECK(leases.of_tenant(TenantId{1}, 9s) == 0s);
  CHECK_FALSE(leases.knows({9, 0}));
  CHECK(history.figures.of(TenantId{1}, {9, 0}) == Figures{});
  CHECK(leases.of_step({10, 0}, 9s) == 2s);
  history.add(lease(true, 7s));
  history.add(lease(false, 8s));
  CHECK(leases.of_step({9, 0}, 9s) == 1s);
}

TEST_CASE("A process of an earlier boot is not taken for a process with the same pid") {
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);
  for (const Record& record : records) history.add(record);
  history.add(placed(1, 44, 99));
  history.add({.at = 1s, .what = BootRecord{.boot_id = "b-2"}});
  const auto news = history.finish({.boot_id = "b-2"}, only_44_lives, 2s);
  CHECK(news.size() == 1);  // the record of the boot
  CHECK(history.recovered.leases.open().empty());
  CHECK(history.recovered.expected_sessions == 0);
  CHECK(history.recovered.placements.empty());
  CHECK(history.keepers.empty());
  CHECK_FALSE(history.take_session(44, 99, kGpu).id);
  CHECK(history.tenants.find(job(9)) != nullptr);
  CHECK(history.tenants.find(TenantId{2}) == nullptr);
}

TEST_CASE("An arbiter that cannot read which boot this is forgets no process that lives") {
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);
  for (const Record& record : records) history.add(record);
  const auto news = history.finish({.boot_id = ""}, only_44_lives, 20s);
  for (const Record& record : news) CHECK_FALSE(std::holds_alternative<BootRecord>(record.what));
  CHECK(history.recovered.expected_sessions > 0);
  CHECK(history.take_session(44, 99, kGpu).id);
}

TEST_CASE("After a boot of the host every lease has ended and jobs keep their time") {
  History history;
  std::vector<Record> records = all_kinds();
  records.resize(8);
  for (const Record& record : records) history.add(record);
  history.add(lease(true, 6s, 2, 10));
  history.finish({.boot_id = "b-2"}, only_44_lives, 1s);
  CHECK(history.recovered.leases.open().empty());
  CHECK(history.recovered.expected_sessions == 0);
  CHECK(history.recovered.leases.of_step({9, 0}, 100s) == 2s);
  CHECK(history.tenants.find(job(9)) != nullptr);
  CHECK(history.tenants.find(TenantId{2}) == nullptr);
}

Record session_of(std::uint64_t session, std::uint64_t tenant, std::uint32_t pid) {
  return {.at = 2s,
          .what = SessionRecord{.session = SessionId{session},
                                .tenant = TenantId{tenant},
                                .step = {.job = 9, .step = 0},
                                .pid = pid,
                                .started = 99}};
}
Record attached(std::uint64_t session, const GpuUuid& gpu) {
  return {.at = 2s, .what = AttachRecord{.session = SessionId{session}, .gpu = gpu}};
}
std::string bodies_of(const std::vector<Record>& records) {
  std::string text;
  for (const Record& record : records) text += format_record(record).substr(9);
  return text;
}

TEST_CASE("For sessions and tenants that ended without an arbiter, records are added, sessions first") {
  const auto lives = [](pid_t pid) { return pid == 44 || pid == 46 ? 99u : 0u; };
  TenantName first, second, third;
  first.run.bytes[0] = 1;
  second.run.bytes[0] = 2;
  third.run.bytes[0] = 3;
  History history;
  for (const Record& record :
       {Record{.at = 1s, .what = BootRecord{.boot_id = "b-1"}}, tenant(1, first), tenant(2, second),
        tenant(3, third), session_of(5, 1, 44), session_of(6, 2, 46), session_of(7, 3, 48),
        session_of(8, 3, 50), attached(5, kGpu), attached(7, kGpu)})
    history.add(record);
  CHECK(bodies_of(history.finish({.boot_id = "b-1", .booted = 7ns}, lives, 20s)) ==
        "20000000000 boot b-1 7\n20000000000 gone 7\n20000000000 gone 8\n20000000000 end 3\n");
  CHECK(history.recovered.expected_sessions == 1);  // the session that had a GPU
  CHECK(history.recovered.last_record == 2s);
  CHECK_FALSE(history.take_session(48, 99, kGpu).id);
  CHECK_FALSE(history.take_session(50, 99, kGpu).id);
  CHECK(history.tenants.find(first) != nullptr);
  CHECK(history.tenants.find(second) != nullptr);
  // Each process finds its own session again.
  const History::PastSession waiting = history.take_session(46, 99, kGpu);
  CHECK(waiting.id == SessionId{6});
  CHECK_FALSE(waiting.expected);
  CHECK(history.take_session(44, 99, kGpu).id == SessionId{5});
}

TEST_CASE("A process finds the session that had its GPU again, rather than one of which no GPU is known") {
  for (const std::uint64_t attached_one : {5, 6}) {
    History history;
    for (const Record& record :
         {tenant(1, job(9)), session_of(5, 1, 44), session_of(6, 1, 44), attached(attached_one, kGpu)})
      history.add(record);
    CHECK(history.take_session(44, 99, kGpu).id == SessionId{attached_one});
    CHECK(history.take_session(44, 99, kGpu).id == SessionId{11 - attached_one});
  }
}

TEST_CASE("Records of tenants, sessions and jobs that are not known change nothing") {
  History history;
  for (const Record& record :
       {Record{.at = 1s, .what = OptionsRecord{.tenant = TenantId{1}, .options = {}}},
        Record{.at = 1s, .what = ClassRecord{.tenant = TenantId{1}, .job_class = {"long", "", 0}}},
        Record{.at = 1s, .what = OverRecord{.tenant = TenantId{1}}},
        Record{.at = 1s, .what = EndRecord{.tenant = TenantId{1}}},
        Record{.at = 1s, .what = GoneRecord{.session = SessionId{1}}}, attached(1, kGpu)})
    history.add(record);
  CHECK(history.tenants.all().empty());
  CHECK_FALSE(history.take_session(44, 99, kGpu).id);
}

TEST_CASE("The end of a tenant ends its sums, and those of the others go on") {
  TenantName first, second;
  first.run.bytes[0] = 1;
  second.run.bytes[0] = 2;
  History history;
  for (const Record& record : {tenant(1, first), tenant(2, second), lease(true, 1s, 1, 0),
                               lease(false, 3s, 1, 0), lease(true, 1s, 2, 0), lease(false, 2s, 2, 0)})
    history.add(record);
  for (std::uint64_t id : {1, 2})
    history.add(
        {.at = 3s, .what = UsedRecord{.tenant = TenantId{id}, .step = {}, .figures = {.handoffs = id}}});
  history.add({.at = 4s, .what = EndRecord{.tenant = TenantId{1}}});
  CHECK(history.recovered.leases.of_tenant(TenantId{1}, 9s) == 0s);
  CHECK(history.recovered.leases.of_tenant(TenantId{2}, 9s) == 1s);
  CHECK(history.figures.of(TenantId{1}) == Figures{});
  CHECK(history.figures.of(TenantId{2}).handoffs == 2);
  CHECK(history.tenants.find(first) == nullptr);
  CHECK(history.tenants.find(second)->id == TenantId{2});
}

}  // namespace
}  // namespace sharedgpu
