// SPDX-License-Identifier: Apache-2.0
// The journal: the order of records and grants, a full disk, and the limits of each user.
#include "arbiter/daemon/journal.h"

#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cerrno>
#include <fstream>
#include <string>
#include <type_traits>

#include "arbiter/core/core.h"
#include "arbiter/daemon/log.h"
#include "arbiter/daemon/performer.h"
#include "arbiter/policy/registry.h"
#include "systems.h"

namespace sharedgpu {
namespace {

// Actions are performed only after their records are in the ledger.
static_assert(!std::is_constructible_v<RecordedActions, Actions>);
static_assert(!std::is_default_constructible_v<RecordedActions>);
static_assert(!std::is_invocable_v<
              decltype(static_cast<void (Performer::*)(const RecordedActions&)>(&Performer::perform)),
              Performer&, Actions>);

// Writes fail with the errno value `error`, unless it is 0.
struct Disk : FileCalls {
  explicit Disk(const int& its) : error(its) {}
  ssize_t write(int file, const void* bytes, std::size_t size) override {
    if (error == 0) return FileCalls::write(file, bytes, size);
    errno = error;
    return -1;
  }
  const int& error;
};

struct Bench {
  test::TemporaryFolder folder;
  test::FaultySystem system;
  asio::io_context loop{1};
  FigureBook figures;
  int disk_error = 0;
  Journal journal{loop, system, figures, settings(), std::make_unique<Disk>(disk_error)};

  Bench() {
    REQUIRE(log::open("info", folder.path + "/log").ok());
    REQUIRE(journal.open([](const Record&) {}).ok());
  }
  ~Bench() { static_cast<void>(log::open("off", {})); }
  Settings settings() const {
    Settings settings;
    settings.state_dir = folder.path;
    return settings;
  }
  std::string text_of(const std::string& name) const {
    std::ifstream file(folder.path + name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string ledger() const { return text_of("/ledger"); }
};

const LeaseKey kKey{.tenant = {1}, .gpu = {{7}}, .step = {}};

TEST_CASE("A lease is in the ledger before it can be granted") {
  Bench bench;
  bench.journal.record(OverRecord{.tenant = {5}});
  CHECK(bench.ledger().empty());  // records that are not urgent wait for the next flush
  const RecordedActions recorded = bench.journal.write_down(
      {SetGate{.session = {1}, .open = true},
       RecordLease{.grant = true, .key = kKey, .epoch = {3}, .at = std::chrono::seconds(2)}});
  CHECK(recorded.all().size() == 2);
  CHECK(bench.ledger().find(" over 5\n") != std::string::npos);
  CHECK(bench.ledger().find(" grant ") != std::string::npos);
}

TEST_CASE("With a full disk the arbiter continues, and writes the records when there is room") {
  Bench bench;
  bench.disk_error = ENOSPC;
  for (int i = 0; i < 3; ++i) {
    bench.journal.record(OverRecord{.tenant = {5}});
    bench.journal.flush();
  }
  CHECK(bench.ledger().empty());
  const std::string log = bench.text_of("/log");
  CHECK(log.find("ledger: No space left on device; records are kept in memory") != std::string::npos);
  CHECK(log.find("No space left") ==
        log.rfind("No space left"));                    // the failure is logged once, until the next try
  bench.loop.run_for(std::chrono::milliseconds(1200));  // the journal tries again and fails
  CHECK(bench.ledger().empty());
  bench.disk_error = 0;
  while (bench.ledger().empty()) REQUIRE(bench.loop.run_one_for(std::chrono::seconds(20)) == 1);
  const std::string written = bench.ledger();
  CHECK(std::count(written.begin(), written.end(), '\n') == 3);
  CHECK(bench.text_of("/log").find("ledger: written again") != std::string::npos);
}

TEST_CASE("A ledger that cannot be opened is not used") {
  test::TemporaryFolder folder;
  asio::io_context loop(1);
  FigureBook figures;
  Settings settings;
  settings.state_dir = folder.path + "/missing";
  Journal journal(loop, test::kHostSystem, figures, settings);
  const Status opened = journal.open([](const Record&) {});
  CHECK(opened.code() == ENOENT);
  CHECK(opened.message().find(settings.state_dir) != std::string::npos);
}

TEST_CASE("Damaged lines are logged") {
  test::TemporaryFolder folder;
  std::ofstream(folder.path + "/ledger") << "what is this?\n";
  asio::io_context loop(1);
  FigureBook figures;
  Settings settings;
  settings.state_dir = folder.path;
  REQUIRE(log::open("warning", folder.path + "/log").ok());
  Journal journal(loop, test::kHostSystem, figures, settings);
  CHECK(journal.open([](const Record&) {}).ok());
  static_cast<void>(log::open("off", {}));
  std::ifstream file(folder.path + "/log");
  const std::string log(std::istreambuf_iterator<char>(file), {});
  CHECK(log.find("passed over 1 damaged lines of 1") != std::string::npos);
}

TEST_CASE("Each user may add records at a limited rate, and root without a limit") {
  Bench bench;
  const auto count = [&](uid_t uid) {
    int allowed = 0;
    while (allowed < 5000 && bench.journal.may_write(uid)) ++allowed;
    return allowed;
  };
  bench.system.time = std::chrono::seconds(1000);
  CHECK(count(7) == 1024);
  CHECK(count(7) == 0);
  CHECK(count(8) == 1024);
  CHECK(count(0) == 5000);
  *bench.system.time += std::chrono::seconds(2);
  CHECK(count(7) == 100);
  CHECK(count(0) == 5000);
}

TEST_CASE("While a lease is open, a record is written in each second without another record") {
  Bench bench;
  const std::unique_ptr<Policy> policy = make_policy("round-robin");
  Recovered recovered;
  recovered.leases.grant(kKey, Epoch{3}, std::chrono::seconds(1));
  const Core core({}, *policy, std::move(recovered), std::chrono::seconds(10));
  REQUIRE(core.leases().holds(kKey.tenant));
  const auto seen = [&] {
    const std::string text = bench.ledger();
    std::size_t count = 0;
    for (std::size_t at = text.find(" seen\n"); at != std::string::npos; at = text.find(" seen\n", at + 1))
      ++count;
    return count;
  };
  bench.system.time = std::chrono::seconds(10);
  bench.journal.record(OverRecord{.tenant = {5}});
  bench.journal.flush();
  bench.journal.watch_leases(core);
  bench.journal.watch_leases(core);  // the second call has no effect
  *bench.system.time += std::chrono::milliseconds(999);
  REQUIRE(bench.loop.run_one_for(std::chrono::seconds(20)) == 1);
  CHECK(seen() == 0);
  *bench.system.time += std::chrono::milliseconds(1);
  REQUIRE(bench.loop.run_one_for(std::chrono::seconds(20)) == 1);
  CHECK(seen() == 1);
  CHECK(bench.ledger().find(" 11000000000 seen\n") != std::string::npos);
}

TEST_CASE("Users that have not written for long are forgotten, and other users are not") {
  Bench bench;
  bench.system.time = std::chrono::seconds(1000);
  for (uid_t uid = 1; uid <= 2000; ++uid) REQUIRE(bench.journal.may_write(uid));
  *bench.system.time += std::chrono::minutes(1);
  while (bench.journal.may_write(7)) continue;
  for (uid_t uid = 3001; uid <= 3100; ++uid) REQUIRE(bench.journal.may_write(uid));
  CHECK(bench.journal.writers() < 1100);
  CHECK_FALSE(bench.journal.may_write(7));
}

TEST_CASE("Without an open lease no periodic record is written") {
  Bench bench;
  const std::unique_ptr<Policy> policy = make_policy("round-robin");
  const Core core({}, *policy, {}, std::chrono::seconds(10));
  bench.journal.watch_leases(core);
  CHECK(bench.loop.run_one_for(std::chrono::milliseconds(10)) == 0);
}

TEST_CASE("At the end all records are written") {
  Bench bench;
  const std::unique_ptr<Policy> policy = make_policy("round-robin");
  Core core({}, *policy, {}, std::chrono::seconds(10));
  bench.system.time = std::chrono::seconds(10);
  for (std::uint64_t id : {1, 2})
    core.handle(SessionCame{.session = {id},
                            .tenant = {id},
                            .step = {.job = static_cast<std::uint32_t>(id), .step = 0},
                            .cap = {},
                            .host_cap = {},
                            .claims = {},
                            .hello = {}},
                std::chrono::seconds(10));
  bench.journal.observe(core.sighting(), std::chrono::seconds(10));
  bench.journal.flush();
  CHECK(bench.ledger().find(" used ") == std::string::npos);
  bench.journal.end(core);
  for (const char* key : {" used 1 0 0 ", " used 1 1 0 ", " used 2 0 0 ", " used 2 2 0 "})
    CHECK(bench.ledger().find(key) != std::string::npos);
}

TEST_CASE("Faults of the ledger are logged") {
  struct NoNewFile : FileCalls {
    int open(const std::string& path, int flags) override {
      if (!path.ends_with(".new")) return FileCalls::open(path, flags);
      errno = EACCES;
      return -1;
    }
  };
  Bench bench;
  Settings settings = bench.settings();
  settings.ledger_size = Bytes{10};
  settings.ledger_files = 2;
  Journal journal(bench.loop, bench.system, bench.figures, settings, std::make_unique<NoNewFile>());
  REQUIRE(journal.open([](const Record&) {}).ok());
  for (int i = 0; i < 2; ++i) {
    journal.record(OverRecord{.tenant = {5}});
    journal.flush();
  }
  CHECK(bench.text_of("/log").find("ledger.new: Permission denied; no new ledger file can be started") !=
        std::string::npos);
}

TEST_CASE("A full disk is not tried again at once") {
  Bench bench;
  bench.disk_error = ENOSPC;
  bench.journal.record(OverRecord{.tenant = {5}});
  bench.journal.flush();
  bench.disk_error = 0;
  bench.loop.poll();
  bench.journal.flush();
  CHECK(bench.ledger().empty());
}

}  // namespace
}  // namespace sharedgpu
