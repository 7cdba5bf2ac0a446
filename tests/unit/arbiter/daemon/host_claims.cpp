// SPDX-License-Identifier: Apache-2.0
// Tests which reports about host memory the arbiter believes, and how it treats false reports. Sessions
// report a lack of host memory, limits on host memory, and host memory that they hold. The tests set the time
// and the host's memory.
#include "arbiter/daemon/host_claims.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

// A host whose job 7 has a memory limit: 8 GiB if a test sets no other limit.
class Memory : public FaultySystem {
 public:
  Bytes used;             // used memory of the job
  mutable int looks = 0;  // number of times that the used memory of the job was read
  int error = 0;          // the errno value with which these reads fail; 0: they succeed
  Bytes limit = gibibytes(8);
  Bytes resident;  // resident memory of each process

  Memory() { time = 1000s; }
  void pass(Nanoseconds by) { *time += by; }

  Status read_file(const std::string& path, std::string& text) const override {
    if (path.ends_with("/cgroup"))
      text = "0::/slurm/job_7\n";
    else if (path == "/proc/meminfo")
      text = "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n";
    else if (path == "/proc/sys/vm/overcommit_memory")
      text = "0\n";
    else if (path.ends_with("/status"))
      text = "Name:\tx\nVmRSS:\t  " + std::to_string(resident.count >> 10) + " kB\n";
    else if (path == kJob + "/memory.max")
      text = std::to_string(limit.count);
    else if (path == kJob + "/memory.stat")
      text = "anon 1\n";
    else if (path == kJob + "/memory.current")
      return look(path, text);
    else if (path.starts_with("/sys/fs/cgroup"))
      return Status::of_errno(ENOENT, path);
    else
      return FaultySystem::read_file(path, text);
    return {};
  }
  Status owner_of(const std::string& path, uid_t& owner) const override {
    return path == kJob ? Status() : FaultySystem::owner_of(path, owner);
  }
  std::string group_folder(const std::string& group) const override { return "/sys/fs/cgroup" + group; }
  Status read_group(const std::string& group, const char* file, std::string& text) const override {
    return read_file(group_folder(group) + "/" + file, text);
  }
  int send_signal(int /*pidfd*/, int /*number*/) const override { return 0; }

 private:
  inline static const std::string kJob = "/sys/fs/cgroup/slurm/job_7";
  Status look(const std::string& path, std::string& text) const {
    ++looks;
    text = std::to_string(used.count);
    return error == 0 ? Status() : Status::of_errno(error, path);
  }
};

constexpr Bytes kAll = mebibytes(800);

// A session that has had its turn has 800 MiB on the GPU, and another session waits for this memory.
struct Standoff {
  explicit Standoff(Measure measure = Measure::warn)
      : host(settings_of(measure), memory),
        holder(started(), kUser, {}, process.pid()),
        waiting(host, kUser + 1) {
    come(holder);
    come(waiting);
    REQUIRE(holder.say(Usage{.request = 1, .use = use(kAll, {})}).find<Verdict>());
    REQUIRE(holder.say(Usage{.request = 0, .use = use(kAll, kAll)}).answers.empty());
    go_out(waiting.say(Usage{.request = 1, .use = use(kAll, {})}));
    memory.pass(11s);
    waiting.say(Want{});
    revoke = holder.hear().find<Revoke>();
    REQUIRE(revoke);
    const auto evict = holder
                           .say(Released{.epoch = revoke->epoch,
                                         .order = revoke->order,
                                         .wants = 0,
                                         .overuse = {},
                                         .use = use(kAll, kAll)})
                           .find<Evict>();
    REQUIRE(evict);
    REQUIRE(evict->allowed < kAll);
  }
  static Settings settings_of(Measure measure) {
    Settings settings;
    settings.oversize = true;
    settings.quantum = 10s;
    settings.max_overuse = 1min;
    settings.on_overuse = measure;
    return settings;
  }
  static MemoryUse use(Bytes swappable, Bytes resident) {
    MemoryUse use{};
    use.swappable = swappable;
    use.resident = resident;
    use.context = mebibytes(1);
    return use;
  }
  Host& started() {
    host.start();
    return host;
  }
  static void come(Guest& guest) {
    REQUIRE(guest.say(Hello{}).find<Welcome>());
    REQUIRE(guest.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}).find<Attached>());
  }
  // The waiting session sends Released if it was sent Revoke.
  void go_out(const Guest::Reaction& heard) {
    if (const auto order = heard.find<Revoke>())
      waiting.say(Released{
          .epoch = order->epoch, .order = order->order, .wants = 1, .overuse = {}, .use = use(kAll, {})});
  }
  // The holder evicts nothing, and reports at intervals of `pause` that it cannot evict.
  void claim(Nanoseconds time, Nanoseconds pause = 1s) {
    for (const Nanoseconds end = *memory.time + time; *memory.time < end; memory.pass(pause)) {
      const auto reaction = holder.say(Usage{.request = 0, .use = use(kAll, kAll), .stuck = 1, .away = away});
      go_out(waiting.hear());
      cancelled = cancelled || reaction.find<Cancelled>();
    }
  }
  Json tenant() const { return host.status()["tenants"][0]; }
  bool overdue() const { return tenant()["overdue"].is_object(); }
  std::string log() {
    std::string text;
    for (const std::string& line : host.new_log_lines()) text += line + "\n";
    return text;
  }
  bool disbelieved() {
    return log().find("says that it has no host memory, though 7.8 GiB are free for its job") !=
           std::string::npos;
  }

  Memory memory;
  Process process;
  Host host;
  Guest holder, waiting;
  std::optional<Revoke> revoke;
  bool cancelled = false;
  Bytes away;  // the holder's away memory
};

TEST_CASE("A session that always falsely reports a lack of host memory is overdue") {
  Standoff at(Measure::cancel);
  at.claim(90s);  // the arbiter believes the report until checks have contradicted it for 90 s
  CHECK_FALSE(at.disbelieved());
  CHECK(at.tenant()["stuck"] == true);
  at.claim(5s);
  const std::string log = at.log();
  CHECK(
      log.find("pid " + std::to_string(at.process.pid()) +
               ", uid 4321: says that it has no host memory, though 7.8 GiB are free for its job; it is not "
               "believed\n") != std::string::npos);
  REQUIRE(at.overdue());
  CHECK(at.tenant()["stuck"] == false);
  CHECK(at.tenant()["overdue"]["waits_for"] == "eviction");
  CHECK(at.tenant()["overdue"]["free_host_bytes"] == (gibibytes(8) - mebibytes(256)).count);
  CHECK_FALSE(at.cancelled);
  at.claim(400s);  // the clock jumps, so the arbiter assumes that it did not run for a part of this time
  CHECK(at.cancelled);
  CHECK_FALSE(at.disbelieved());  // the log contains the line about the disbelief only once
}

TEST_CASE("The arbiter plans around a session that has no host memory") {
  Standoff at(Measure::cancel);
  SECTION("at its limit") { at.memory.used = gibibytes(8); }
  SECTION("with less than its tenant is to evict, an eighth and what is on its way") {
    at.memory.used = gibibytes(8) - mebibytes(256) - mebibytes(512);
  }
  SECTION("as far as can be read") { at.memory.error = EMFILE; }
  at.claim(1h);
  CHECK_FALSE(at.overdue());
  CHECK_FALSE(at.cancelled);
  CHECK_FALSE(at.disbelieved());
  CHECK(at.tenant()["stuck"] == true);
}

TEST_CASE("The arbiter plans around a session whose away memory takes the host memory of its job") {
  Standoff at(Measure::cancel);
  at.away = gibibytes(8) - mebibytes(256) - kAll;
  const auto verdict =
      at.holder.say(Usage{.request = 2, .use = Standoff::use(kAll, kAll), .away = at.away}).find<Verdict>();
  REQUIRE(verdict);
  REQUIRE(verdict->granted == 1);
  at.claim(1h);
  CHECK_FALSE(at.overdue());
  CHECK_FALSE(at.cancelled);
  CHECK_FALSE(at.disbelieved());
}

TEST_CASE("A job that lacks host memory for a moment each minute is believed") {
  Standoff at(Measure::cancel);
  for (int i = 0; i < 30; ++i) {
    at.memory.used = gibibytes(8);
    at.claim(2s);
    at.memory.used = {};
    at.claim(60s);
  }
  CHECK_FALSE(at.cancelled);
  CHECK_FALSE(at.disbelieved());
}

TEST_CASE("A session whose report was refuted is believed again as soon as its report is true") {
  Standoff at;
  at.claim(100s);
  REQUIRE(at.disbelieved());
  SECTION("of host memory") { at.memory.used = gibibytes(8); }
  SECTION("of descriptors in the arbiter") { at.memory.error = EMFILE; }
  at.claim(2s);
  CHECK_FALSE(at.overdue());
  CHECK(at.tenant()["stuck"] == true);
  at.memory.used = {};
  at.memory.error = 0;
  at.claim(90s);
  CHECK_FALSE(at.overdue());
  at.claim(5s);
  CHECK(at.overdue());
  CHECK(at.disbelieved());
}

TEST_CASE("Rare false reports are believed for longer, but not for ever") {
  Standoff at(Measure::cancel);
  at.claim(200s, 40s);  // each pause of 40 s counts as 20 s, and four pauses have passed
  CHECK_FALSE(at.disbelieved());
  at.claim(40s, 40s);
  CHECK(at.disbelieved());
}

TEST_CASE("Claims further apart than MaxOveruse are not believed without end, either") {
  Standoff at(Measure::cancel);
  at.claim(3600s, 600s);
  CHECK(at.disbelieved());
}

TEST_CASE("A report that comes hours after another is believed like the first one") {
  Standoff at(Measure::cancel);
  for (int i = 0; i < 4; ++i) {
    CAPTURE(i);
    at.claim(60s, 90ms);  // 90 ms: between two reports, the library does not try to allocate host memory
    CHECK_FALSE(at.disbelieved());
    at.memory.pass(3h);
    at.go_out(at.waiting.hear());
  }
}

TEST_CASE("A process with a refuted report is not believed again because it reconnects") {
  Standoff at;
  at.claim(80s);
  at.holder.channel.close();
  at.host.run();
  Guest again(at.host, kUser, {}, at.process.pid());
  REQUIRE(again.say(Hello{}).find<Welcome>());
  REQUIRE(again.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "Test GPU"}).find<Attached>());
  std::swap(at.holder.channel, again.channel);
  at.claim(15s);
  CHECK(at.disbelieved());
}

TEST_CASE("However often a session reports, the arbiter checks at most twice a second") {
  Standoff at;
  at.memory.looks = 0;
  at.claim(10s, 5ms);
  CHECK(at.memory.looks == 20);
}

TEST_CASE("A session whose job needs its host memory back enters at once if host memory is short") {
  Standoff at;
  const auto restore = [&] {
    at.holder.say(Usage{.request = 0, .use = Standoff::use(kAll, mebibytes(200))});
    return at.waiting.hear().find<Restore>();
  }();
  REQUIRE(restore);
  at.waiting.say(Ready{.epoch = restore->epoch, .use = Standoff::use(kAll, kAll)});
  at.holder.say(Want{.host_short = 1});
  CHECK_FALSE(at.waiting.hear().find<Revoke>());
  CHECK(at.tenant()["wants"] == true);
  CHECK(at.disbelieved());
  at.memory.pass(1s);
  at.memory.used = gibibytes(8);
  at.holder.say(Want{.host_short = 1});
  CHECK(at.waiting.hear().find<Revoke>());
}

// ---- limits ----

TEST_CASE("A stated limit on host memory counts only up to the limit of the session's cgroup") {
  Memory memory;
  memory.limit = mebibytes(1024);  // the arbiter keeps a margin of 32 MiB
  Host host({}, memory);
  host.start();
  host.gpus[0].total = gibibytes(4);
  host.restart();
  Guest guest(host, kUser);
  Standoff::come(guest);
  memory.pass(30s);
  const auto grows_to = [&](unsigned size, Bytes stated) {
    MemoryUse use = Standoff::use(mebibytes(size), {});
    use.host_limit = stated;
    const auto verdict = guest.say(Usage{.request = 1, .use = use, .job_host_limit = stated}).find<Verdict>();
    REQUIRE(verdict);
    return *verdict;
  };
  const auto budget = [&] { return host.status()["tenants"][0]["host_budget_bytes"]; };
  const Bytes stated = GENERATE(Bytes{}, gibibytes(100));
  CHECK(grows_to(900, stated).granted == 1);
  CHECK(budget() == mebibytes(992).count);
  const Verdict refused = grows_to(1000, stated);
  CHECK(refused.granted == 0);
  CHECK(refused.host_most == mebibytes(992));
  SECTION("and may state a lower one") { CHECK(grows_to(980, mebibytes(950)).host_most == mebibytes(950)); }
  SECTION("also where that changes") {
    memory.limit = gibibytes(2);
    memory.pass(1s);
    CHECK(grows_to(1000, stated).granted == 1);
  }
  SECTION("in any message") {
    guest.say(Released{.epoch = {}, .order = 0, .wants = 0, .overuse = {}, .use = Standoff::use({}, {})});
    CHECK(budget() == mebibytes(992).count);
  }
}

// ---- away memory ----

std::optional<Attached> attach(Guest& guest) {
  REQUIRE(guest.say(Hello{}).find<Welcome>());
  return guest.say(Attach{.gpu = kHostGpu, .total = {}, .name = {}}).find<Attached>();
}

// The arbiter reads the limits before the session reports them.
TEST_CASE("A session that may have away memory is told at once how much host memory it may use") {
  Memory memory;
  Settings settings;
  settings.memory_reserve = {};
  SECTION("larger than the GPU") {
    settings.oversize = true;
    Host host(settings, memory);
    host.start();
    Guest guest(host, kUser, StepName{.job = 7, .step = 0});
    const std::optional<Attached> attached = attach(guest);
    REQUIRE(attached);
    CHECK(attached->oversize == 1);
    CHECK(attached->capacity == gibibytes(8) - mebibytes(256));
    CHECK(guest.say(MemoryQuery{}).find<MemoryView>()->total == attached->capacity);
    guest.say(Usage{.request = 0, .use = Standoff::use({}, {})});  // the report states no limit, so the limit
                                                                   // of the cgroup applies
    CHECK(guest.say(MemoryQuery{}).find<MemoryView>()->total == attached->capacity);
    CHECK(guest.say(GpuQuery{.token = {}, .gpu = kHostGpu}).find<GpuReply>()->total == attached->capacity);
  }
  SECTION("not larger than the GPU") {
    Host host(settings, memory);
    host.start();
    Guest guest(host, kUser, StepName{.job = 7, .step = 0});
    const std::optional<Attached> attached = attach(guest);
    REQUIRE(attached);
    CHECK(attached->oversize == 0);
    CHECK(attached->capacity == gibibytes(1));
  }
}

// ---- host memory that sessions hold ----

struct Holder {
  Memory memory;
  Host host{{}, memory};
  Process process, other_process;
  std::optional<Guest> guest, other;

  Holder() {
    host.start();
    memory.limit = gibibytes(64);
    guest.emplace(host, kUser, StepName{.job = 7, .step = 0}, process.pid());
    other.emplace(host, kUser, StepName{.job = 7, .step = 0}, other_process.pid());
    REQUIRE(guest->say(Hello{}).find<Welcome>());
    REQUIRE(other->say(Hello{}).find<Welcome>());
    for (auto& each : {&guest, &other})
      REQUIRE((*each)->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "GPU"}).find<Attached>());
    host.new_log_lines();
  }
  static Usage usage(Bytes held) {
    MemoryUse use{};
    use.context = mebibytes(1);
    use.host = held;
    return {.request = 0, .use = use};
  }
  // For `time`, the guest reports the host memory `held` each second, and the other session reports `others`.
  void report(Nanoseconds time, Bytes held, Bytes others) {
    for (const Nanoseconds end = *memory.time + time; *memory.time < end; memory.pass(1s)) {
      guest->say(usage(held));
      other->say(usage(others));
    }
  }
  Json tenant() const { return host.status()["tenants"][0]; }
  std::vector<std::string> log() { return host.new_log_lines(); }
};

TEST_CASE("A session that reports host memory that neither it nor its cgroup has is named") {
  Holder at;
  at.memory.resident = gibibytes(1);
  at.memory.used = gibibytes(3);
  at.report(10s, gibibytes(10), {});
  CHECK(at.log().empty());
  CHECK(at.tenant()["overreported_host_bytes"] == 0);
  at.report(4s, gibibytes(10), {});
  const std::vector<std::string> said = {"warning: job 7, pid " + std::to_string(at.process.pid()) +
                                         ", uid 4321: reports 10 GiB of host memory for swap, but holds 1 "
                                         "GiB at most; the arbiter counts only this"};
  CHECK(at.log() == said);
  CHECK(at.tenant()["overreported_host_bytes"] == gibibytes(9).count);
  CHECK(at.tenant()["host_bytes"] == gibibytes(1).count);
  at.report(60s, gibibytes(10), {});
  CHECK(at.log().empty());
  at.report(4s, gibibytes(1), {});
  CHECK(at.tenant()["overreported_host_bytes"] == 0);
}

TEST_CASE("Reports of the managed backend are not checked, since its memory is the driver's") {
  Holder at;
  const Process process;
  Guest managed(at.host, kUser, StepName{.job = 8, .step = 0}, process.pid());
  Hello hello;
  hello.backend = Backend::managed;
  REQUIRE(managed.say(hello).find<Welcome>());
  REQUIRE(managed.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "GPU"}).find<Attached>());
  at.log();
  at.memory.resident = gibibytes(1);
  at.memory.used = gibibytes(3);
  for (int i = 0; i < 60; ++i, at.memory.pass(1s)) managed.say(Holder::usage(gibibytes(10)));
  CHECK(at.log().empty());
}

TEST_CASE("The reports of all sessions in a cgroup are compared with its charge") {
  Holder at;
  at.memory.resident = gibibytes(1);
  at.memory.used = gibibytes(6);
  at.report(30s, gibibytes(5), gibibytes(5));
  CHECK(at.tenant()["overreported_host_bytes"] == gibibytes(8).count);
  CHECK(at.log().size() == 2);
}

TEST_CASE("A report of host memory is not refuted") {
  Holder at;
  at.memory.resident = gibibytes(1);
  at.memory.used = gibibytes(1);
  SECTION("if the process has it, wherever it is charged") { at.memory.resident = gibibytes(10); }
  SECTION("if its cgroup is charged for it") { at.memory.used = gibibytes(10); }
  SECTION("if the charge cannot be read") { at.memory.error = EMFILE; }
  SECTION("while it may be late") {
    for (int i = 0; i < 10; ++i) {
      at.report(8s, gibibytes(10), {});
      at.report(3s, gibibytes(1), {});
    }
  }
  at.report(8s, gibibytes(10), {});
  if (at.memory.resident == gibibytes(10) || at.memory.used == gibibytes(10) || at.memory.error != 0)
    at.report(60s, gibibytes(10), {});
  CHECK(at.log().empty());
  CHECK(at.tenant()["overreported_host_bytes"] == 0);
}

}  // namespace
}  // namespace sharedgpu::test
