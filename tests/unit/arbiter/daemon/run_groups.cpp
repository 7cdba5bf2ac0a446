// SPDX-License-Identifier: Apache-2.0
// The control groups of runs: which runs get a group, which processes enter it, what happens if the host
// refuses a group, and when a group is removed.
#include "arbiter/daemon/run_groups.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "arbiter/daemon/validity.h"
#include "host.h"

namespace sharedgpu::test {
namespace {

using Lines = std::vector<std::string>;

constexpr char kLimit[] = "memory.limit_in_bytes";
constexpr char kPeak[] = "memory.max_usage_in_bytes";

// A run that an administrator starts for the user.
RunRequest vouched(Bytes host_memory, std::uint32_t units = 2) {
  RunRequest request;
  request.vouched = 1;
  request.uid = kUser;
  request.options.units = units;
  request.host_memory = host_memory;
  return request;
}

Settings with_swap() {
  Settings settings;
  settings.swap_per_unit.entries = {{.type = {}, .size = gibibytes(1)}};
  return settings;
}

// Returns the records that begin with `word`.
Lines records(const Host& host, const std::string& word) {
  Lines found;
  for (const std::string& line : host.ledger())
    if (line.starts_with(word + " ")) found.push_back(line);
  return found;
}

struct SiteWithGroups {
  explicit SiteWithGroups(const Settings& settings = with_swap()) : host(settings, system) { host.start(); }
  std::string limit(const std::string& group) { return system.groups.at(group).files.at(kLimit); }
  bool is_empty() const { return system.groups.empty(); }

  GroupsSystem system;
  Host host;
  Process command;  // the command of the run
};

std::string bytes(Bytes size) { return std::to_string(size.count); }

TEST_CASE("A run that states its host memory gets a group with this memory and the memory of its units") {
  SiteWithGroups site;
  Guest run(site.host, 0, {}, site.command.pid());
  const auto reply = run.say(vouched(gibibytes(4))).find<RunReply>();
  REQUIRE(reply);
  CHECK(reply->confined == 1);
  CHECK(site.limit("/sharedgpu/run_1") == bytes(gibibytes(6)));
  CHECK(site.system.places[site.command.pid()] == "/sharedgpu/run_1");
  CHECK(records(site.host, "group") == Lines{"group 1 " + bytes(gibibytes(6))});
  CHECK(site.host.status()["tenants"][0]["host_group"]["limit_bytes"] == gibibytes(6).count);
  CHECK(site.host.status()["tenants"][0]["host_group"]["highest_bytes"] == 0);
}

TEST_CASE("The file of the limit depends on the version of control groups") {
  SiteWithGroups site;
  site.system.is_v2 = true;
  CHECK(Guest(site.host, 0, {}, site.command.pid()).say(vouched(gibibytes(4))).find<RunReply>()->confined ==
        1);
  CHECK(site.system.groups["/sharedgpu/run_1"].files["memory.max"] == bytes(gibibytes(6)));
}

TEST_CASE("A run without stated host memory gets HostMemoryPerUnit for each unit, or no group") {
  Settings settings;
  SECTION("no key") {
    SiteWithGroups site(settings);
    Guest run(site.host, 0, {}, site.command.pid());
    CHECK(run.say(vouched({})).find<RunReply>()->confined == 0);
    CHECK(site.is_empty());
    CHECK(site.host.status()["tenants"][0]["host_group"].is_null());
  }
  SECTION("a key, and another parent") {
    settings.host_memory_per_unit = gibibytes(3);
    settings.cgroup_parent = "/site/jobs";
    SiteWithGroups site(settings);
    Guest run(site.host, 0, {}, site.command.pid());
    CHECK(run.say(vouched({})).find<RunReply>()->confined == 1);
    CHECK(site.limit("/site/jobs/run_1") == bytes(gibibytes(7)));  // two units, and the memory of the GPU
    Guest own(site.host, kUser, {}, site.command.pid());
    CHECK(own.say(RunRequest{}).find<RunReply>()->confined == 0);
    CHECK(site.system.groups.size() == 1);
  }
}

TEST_CASE("Units that SwapPerUnit does not limit bring the memory of the GPUs that the run may see") {
  SiteWithGroups site{Settings{}};
  site.host.gpus.push_back({.uuid = {{2}}, .total = gibibytes(2), .name = "Other"});
  site.host.restart();
  const Process placed, unplaced, native;
  RunRequest request = vouched(mebibytes(100));
  const auto limit_of = [&](const Process& process) {
    const auto reply = Guest(site.host, 0, {}, process.pid()).say(request).find<RunReply>();
    REQUIRE(reply);
    CHECK(reply->confined == 1);
    Bytes its;
    for (const GpuInfo& gpu : site.host.gpus)
      if (reply->gpus.count != 1 || reply->gpus.gpu[0] == gpu.uuid) its += gpu.total;
    return std::pair(site.limit(site.system.places[process.pid()]), its);
  };
  const auto [of_one, one] = limit_of(placed);
  CHECK(of_one == bytes(mebibytes(100) + one));
  request.chosen = 1;
  const auto [of_all, all] = limit_of(unplaced);
  CHECK(of_all == bytes(mebibytes(100) + all));
  CHECK(all == gibibytes(3));
  request.options.backend_given = 1;
  request.options.backend = Backend::native;
  CHECK(limit_of(native).first == bytes(mebibytes(100)));
}

TEST_CASE("Only an administrator states the host memory of a run") {
  SiteWithGroups site;
  RunRequest request;
  request.host_memory = gibibytes(1);
  Guest user(site.host, kUser);
  CHECK(user.say(request).find<Refused>());
  request.host_memory = kLargest + Bytes{1};
  CHECK(Guest(site.host, 0).say(request).closed);
  CHECK(site.is_empty());
}

TEST_CASE("A process that another group limits gets no group") {
  SiteWithGroups site;
  auto& groups = site.system.groups;
  std::string why = "a control group with a limit confines it already";
  std::optional<StepName> step;
  SECTION("a group with a limit") {
    groups["/pbs"].files[kLimit] = "1000000000\n";
    groups["/pbs/12"].files[kLimit] = "9223372036854771712\n";
    site.system.places[site.command.pid()] = "/pbs/12";
  }
  SECTION("a step of Slurm") {
    groups["/slurm/uid_0/job_3/step_0"];
    site.system.places[site.command.pid()] = "/slurm/uid_0/job_3/step_0";
    step = {.job = 3, .step = 0};
    why = "it is in a step of Slurm, which confines it";
  }
  SECTION("nobody knows") {
    site.system.reading = [](const std::string& path) { return path.ends_with("/cgroup") ? EMFILE : 0; };
    why = "its memory control group is unknown";
  }
  const std::size_t before = groups.size();
  Guest run(site.host, 0, step, site.command.pid());
  CHECK(run.say(vouched(gibibytes(4))).find<RunReply>()->confined == 0);
  CHECK(groups.size() == before);
  CHECK(records(site.host, "group").empty());
  const std::string pid = std::to_string(site.command.pid());
  CHECK(site.host.new_log_lines() ==
        Lines{"warning: run 1: pid " + pid + " does not enter a control group of the run: " + why});
}

TEST_CASE("Limits in folders of users, and limits above the groups of runs, do not count") {
  Settings settings;
  settings.cgroup_parent = "/site/runs";
  SiteWithGroups site(settings);
  auto& groups = site.system.groups;
  groups["/site"].files[kLimit] = "8000000000\n";
  SECTION("above") { site.system.places[site.command.pid()] = "/site"; }
  SECTION("a user's") {
    groups["/user"];
    groups["/user/mine"] = {.files = {{kLimit, "8000000000\n"}}, .owner = kUser};
    site.system.places[site.command.pid()] = "/user/mine";
  }
  Guest run(site.host, 0, {}, site.command.pid());
  CHECK(run.say(vouched(gibibytes(4))).find<RunReply>()->confined == 1);
  CHECK(site.system.places[site.command.pid()] == "/site/runs/run_1");
}

TEST_CASE("A run for which the host makes no group goes on without one, and the log says why") {
  SiteWithGroups site;
  std::string error;
  SECTION("it cannot be made") {
    site.system.makes = EACCES;
    error = "Permission denied";
  }
  SECTION("the process cannot be moved") {
    site.system.enters = ENOMEM;
    error = "Cannot allocate memory";
  }
  Guest run(site.host, 0, {}, site.command.pid());
  const auto reply = run.say(vouched(gibibytes(4))).find<RunReply>();
  REQUIRE(reply);
  CHECK(reply->confined == 0);
  CHECK(site.is_empty());
  CHECK(site.host.new_log_lines() ==
        Lines{"warning: run 1: its host memory is not limited: /sharedgpu/run_1: " + error});
  CHECK(records(site.host, "group") == Lines{"group 1 " + bytes(gibibytes(6)), "group 1 0"});
  CHECK(site.host.status()["tenants"][0]["host_group"].is_null());
  // Processes of a run without a group enter no group.
  Guest part(site.host, kUser, {}, site.command.pid());
  CHECK(part.say(JoinRun{.token = reply->token}).find<JoinReply>()->inside == 0);
}

TEST_CASE(
    "While no GPU is known, a run may have the units of twelve GPUs, and a limit that depends on the GPUs is "
    "left out") {
  SiteWithGroups unlimited{Settings{}};
  unlimited.host.gpus.clear();
  unlimited.host.restart();
  Guest run(unlimited.host, 0, {}, unlimited.command.pid());
  const auto reply = run.say(vouched(gibibytes(4), 16)).find<RunReply>();
  REQUIRE(reply);
  CHECK(reply->units == 16);
  CHECK(reply->confined == 0);
  CHECK(unlimited.is_empty());
  const Lines lines = unlimited.host.new_log_lines();
  CHECK(std::ranges::count(
            lines,
            "warning: run 1: its host memory is not limited: the memory of its units is unknown, "
            "because the arbiter knows no GPU yet") == 1);
  SiteWithGroups sized;
  sized.host.gpus.clear();
  sized.host.restart();
  Guest other(sized.host, 0, {}, sized.command.pid());
  CHECK(other.say(vouched(gibibytes(4), 16)).find<RunReply>()->confined == 1);
  CHECK(sized.limit("/sharedgpu/run_1") == bytes(gibibytes(20)));
  const Process third;
  Guest many(sized.host, 0, {}, third.pid());
  CHECK(many.say(vouched(gibibytes(4), 1000)).find<RunReply>()->units == 96);
}

TEST_CASE("A run counts with no more units than the node has, and log and reply say so") {
  SiteWithGroups site;
  Guest run(site.host, 0, {}, site.command.pid());
  CHECK(run.say(vouched(gibibytes(4), 100'000)).find<RunReply>()->units == 8);
  CHECK(site.limit("/sharedgpu/run_1") == bytes(gibibytes(12)));
  CHECK(site.host.status()["tenants"][0]["units"] == 8);
  CHECK(site.host.new_log_lines().front() ==
        "warning: run 1: asks for 100000 units, but gets only the 8 of this node");
  const Process second;
  Guest other(site.host, 0, {}, second.pid());
  REQUIRE(other.say(vouched(gibibytes(4), 8)).find<RunReply>());
  CHECK(site.limit("/sharedgpu/run_2") == bytes(gibibytes(12)));
}

// A run with a group, and a process outside of it.
struct Running : SiteWithGroups {
  Running()
      : run(host, 0, {}, command.pid()), token(run.say(vouched(gibibytes(4))).find<RunReply>()->token) {}
  bool has(const Process& process) { return system.places[process.pid()] == "/sharedgpu/run_1"; }
  std::uint8_t join(const Process& process, uid_t uid = kUser) {
    const auto reply = Guest(host, uid, {}, process.pid()).say(JoinRun{.token = token}).find<JoinReply>();
    REQUIRE(reply);
    return reply->inside;
  }

  Process outside;  // started before `run` connects, since a later process would inherit the connection
  Guest run;
  RunToken token;
};

TEST_CASE("A process of the run's user that has the token enters the group, and nobody else") {
  Running site;
  CHECK(site.join(site.outside, kUser + 1) == 0);
  CHECK_FALSE(site.has(site.outside));
  CHECK(site.join(site.outside) == 1);
  CHECK(site.has(site.outside));
  site.system.is_slow = true;  // the process is in the group, so no slow call is needed
  CHECK(site.join(site.outside) == 1);

  site.system.is_slow = false;
  const Process in_step;
  Guest step(site.host, kUser, StepName{.job = 3, .step = 0}, in_step.pid());
  CHECK(step.say(JoinRun{.token = site.token}).find<JoinReply>()->inside == 0);
  const Process other;
  Guest stranger(site.host, kUser, {}, other.pid());
  CHECK(stranger.say(JoinRun{}).find<JoinReply>()->inside == 0);
}

TEST_CASE("A process in the group of one run does not leave it for that of another run of its user") {
  Running site;
  const Process second;
  Guest run(site.host, 0, {}, second.pid());
  const auto reply = run.say(vouched(gibibytes(64))).find<RunReply>();
  REQUIRE(site.join(site.outside) == 1);
  Guest part(site.host, kUser, {}, site.outside.pid());
  CHECK(part.say(JoinRun{.token = reply->token}).find<JoinReply>()->inside == 0);
  CHECK(site.has(site.outside));
}

TEST_CASE("Processes of a run that another group confines stay there, with one line in the log for all") {
  Running site;
  site.system.groups["/pbs/12"].files[kLimit] = "1000000000\n";
  site.system.groups["/pbs"];
  const Process second;
  for (const Process* each : std::initializer_list<const Process*>{&site.outside, &second}) {
    site.system.places[each->pid()] = "/pbs/12";
    CHECK(site.join(*each) == 0);
    CHECK(site.system.places[each->pid()] == "/pbs/12");
  }
  CHECK(site.host.new_log_lines().size() == 1);
}

TEST_CASE("A process that cannot be moved gets a message, and its session begins anyway") {
  Running site;
  site.system.enters = EBUSY;
  CHECK(site.join(site.outside) == 0);
  CHECK(site.host.new_log_lines().size() == 1);
  Guest session(site.host, kUser, {}, site.outside.pid());
  Hello hello;
  hello.token = site.token;
  CHECK(session.say(hello).find<Welcome>());
}

TEST_CASE("A session of the run begins when its process is in the group") {
  Running site;
  Hello hello;
  hello.token = site.token;
  site.system.is_slow = true;
  auto session = std::make_unique<Guest>(site.host, kUser, std::nullopt, site.outside.pid());
  CHECK(session->say(hello).answers.empty());
  SECTION("in time") {
    site.system.work();
    CHECK(session->hear().find<Welcome>());
    CHECK(site.has(site.outside));
    CHECK(site.host.status()["tenants"][0]["pids"][0] == site.outside.pid());
  }
  SECTION("not twice") {
    CHECK(session->say(hello).closed);
    site.system.work();
    site.host.run();
    CHECK(site.host.status()["tenants"][0]["pids"].empty());
  }
  SECTION("not without a connection") {
    session.reset();
    site.host.run();
    site.system.work();
    site.host.run();
    CHECK(site.host.status()["tenants"][0]["pids"].empty());
  }
}

TEST_CASE("Under Tenants=jobs, a session of a run that ends while its process is moved is refused") {
  Settings settings = with_swap();
  settings.tenants = TenantKind::jobs;
  SiteWithGroups site(settings);
  const Process outside;
  auto run = std::make_unique<Guest>(site.host, 0, std::nullopt, site.command.pid());
  Hello hello;
  hello.token = run->say(vouched(gibibytes(4))).find<RunReply>()->token;
  site.system.is_slow = true;
  Guest session(site.host, kUser, {}, outside.pid());
  CHECK(session.say(hello).answers.empty());
  site.command.end();
  run.reset();
  site.host.run_until([&] { return site.host.ledger().back() == "end 1"; });
  site.system.work();
  CHECK(session.hear().find<Refused>());
  CHECK(site.host.status()["tenants"].empty());
}

TEST_CASE("The rate at which root's processes are moved is not limited") {
  Running site;
  RunRequest request = vouched(gibibytes(4));
  request.uid = 0;
  const Process command;
  Guest run(site.host, 0, {}, command.pid());
  const RunToken token = run.say(request).find<RunReply>()->token;
  site.system.time = site.system.now();
  site.system.enters = ESRCH;
  const auto join = [&] {
    return Guest(site.host, 0, {}, site.outside.pid()).say(JoinRun{.token = token}).find<JoinReply>()->inside;
  };
  for (int i = 0; i < static_cast<int>(RunGroups::kMovesAtOnce); ++i) REQUIRE(join() == 0);
  site.system.enters = 0;
  CHECK(join() == 1);
}

TEST_CASE("A process that has ended is not moved, and a new process with its pid is not moved either") {
  Running site;
  site.system.is_slow = true;
  Guest part(site.host, kUser, {}, site.outside.pid());
  CHECK(part.say(JoinRun{.token = site.token}).answers.empty());
  site.outside.end();
  site.system.work();
  CHECK(part.hear().find<JoinReply>()->inside == 0);
  CHECK(site.system.places.size() == 1);
  CHECK(site.host.new_log_lines().empty());
}

TEST_CASE("A move that has not begun when the arbiter ends is dropped") {
  Running site;
  site.system.is_slow = true;
  {
    Guest part(site.host, kUser, {}, site.outside.pid());
    CHECK(part.say(JoinRun{.token = site.token}).answers.empty());
  }
  site.host.restart();
  site.system.work();
  CHECK_FALSE(site.has(site.outside));
}

TEST_CASE("The thread beside the loop ends when it has finished its current work") {
  std::promise<void> begun, go;
  bool is_done = false;
  auto aside = kHostSystem.aside();
  aside->run([&] {
    begun.set_value();
    go.get_future().wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    is_done = true;
  });
  begun.get_future().wait();
  go.set_value();
  aside.reset();
  CHECK(is_done);
}

TEST_CASE("A user's processes are moved at a limited rate, and processes beyond the rate reconnect") {
  Running site;
  site.system.time = site.system.now();
  site.system.enters = ESRCH;
  for (int i = 0; i < static_cast<int>(RunGroups::kMovesAtOnce); ++i) REQUIRE(site.join(site.outside) == 0);
  site.system.enters = 0;
  CHECK(site.join(site.outside) == 0);
  Hello hello;
  hello.token = site.token;
  CHECK(Guest(site.host, kUser, {}, site.outside.pid()).say(hello).closed);
  CHECK_FALSE(site.has(site.outside));
  *site.system.time += std::chrono::seconds(1);
  CHECK(Guest(site.host, kUser, {}, site.outside.pid()).say(hello).find<Welcome>());
  CHECK(site.has(site.outside));
}

// Returns the highest use of host memory: the last field of the last "used" record.
std::string recorded_peak(const Host& host) {
  const Lines used = records(host, "used");
  return used.empty() ? "" : used.back().substr(used.back().rfind(' ') + 1);
}

TEST_CASE(
    "The highest use is shown, goes into the ledger when the run ends, and the empty group is removed") {
  Running site;
  auto& files = site.system.groups["/sharedgpu/run_1"].files;
  SECTION("version 1") { files[kPeak] = "12345\n"; }
  SECTION("version 2") {
    files["memory.peak"] = "12345\n";
    files["memory.current"] = "1\n";
  }
  SECTION("an old kernel with version 2: what was seen") { files["memory.current"] = "12345\n"; }
  site.host.run_until(
      [&] { return site.host.status()["tenants"][0]["host_group"]["highest_bytes"] == 12345; });
  if (files.count("memory.current") != 0) files["memory.current"] = "77\n";
  site.system.places.clear();
  site.command.end();
  site.run.channel.close();
  site.host.run_until([&] { return site.is_empty(); });
  CHECK(recorded_peak(site.host) == "12345");
  CHECK(site.host.ledger().back() == "end 1");
}

TEST_CASE("A group stays as long as a process is left in it, and a fault is named once") {
  Running site;
  REQUIRE(site.join(site.outside) == 1);
  site.command.end();
  site.system.places.erase(site.command.pid());
  site.run.channel.close();
  site.host.run_until([&] { return site.host.ledger().back() == "end 1"; });
  CHECK_FALSE(site.is_empty());
  site.system.removals = EIO;
  Lines lines;
  site.host.run_until([&] {
    for (const std::string& line : site.host.new_log_lines()) lines.push_back(line);
    return !lines.empty();
  });
  CHECK(lines == Lines{"warning: cannot remove /sharedgpu/run_1: Input/output error"});
  site.system.removals = 0;
  site.system.places.clear();
  site.host.run_until([&] { return site.is_empty(); });
  CHECK(site.host.new_log_lines().empty());
}

TEST_CASE("A restarted arbiter keeps the groups of live runs, and removes all other groups") {
  Running site;
  site.system.groups["/sharedgpu/run_1"].files[kPeak] = "500\n";
  site.system.groups["/sharedgpu/run_40"];
  SECTION("the run lives") {
    site.host.restart();
    site.host.run_until([&] { return site.system.groups.size() == 1; });
    CHECK(site.host.status()["tenants"][0]["host_group"]["limit_bytes"] == gibibytes(6).count);
    CHECK(site.host.status()["tenants"][0]["host_group"]["highest_bytes"] == 500);
    CHECK(site.join(site.outside) == 1);
    CHECK(site.has(site.outside));
    site.system.places.clear();
    site.command.end();
    site.host.run_until([&] { return site.is_empty(); });
  }
  SECTION("the run has ended meanwhile") {
    site.system.places.clear();
    site.command.end();
    site.host.restart();
    site.host.run_until([&] { return site.is_empty(); });
  }
  CHECK(recorded_peak(site.host) == "500");
  // A tenant's number is not used again.
  const Process next;
  Guest run(site.host, 0, {}, next.pid());
  CHECK(run.say(vouched(gibibytes(4))).find<RunReply>()->tenant == TenantId{41});
}

}  // namespace
}  // namespace sharedgpu::test
