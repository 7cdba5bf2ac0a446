// SPDX-License-Identifier: Apache-2.0
// Processes that have memory on a GPU without a session on this GPU: which of them the arbiter finds and
// logs, and which of them it asks to end. The test provides NVML and /proc.
#include "arbiter/daemon/unmanaged.h"

#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;
using Json = nlohmann::json;

struct Memory {
  unsigned long long total, free, used;
};
struct Listed {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};
// The processes that NVML reports in each survey child that is forked later. A second GPU exists only if
// `listed_on_second` has a value.
std::vector<Listed> listed;
std::optional<std::vector<Listed>> listed_on_second;

int succeed() { return 0; }
int count_of(unsigned* count) {
  *count = listed_on_second ? 2 : 1;
  return 0;
}
int handle_of(unsigned index, void** handle) {
  *handle = index == 0 ? &listed : &*listed_on_second;
  return 0;
}
int uuid_of(void* gpu, char* text, unsigned size) {
  std::snprintf(text, size, "GPU-0%d000000-0000-0000-0000-000000000000", gpu == &listed ? 1 : 2);
  return 0;
}
int memory_of(void*, Memory* memory) {
  *memory = {};
  return 0;
}
int processes_on(void* gpu, unsigned* count, Listed* places) {
  const auto& its = *static_cast<const std::vector<Listed>*>(gpu);
  *count = static_cast<unsigned>(its.size());
  std::copy(its.begin(), its.end(), places);
  return 0;
}

// A host with the fake NVML of this file, and with processes that exist only in the host's /proc.
class Board : public FaultySystem {
 public:
  mutable std::vector<std::pair<pid_t, int>> signals;  // the signals sent

  Board() {
    listed.clear();
    listed_on_second.reset();
    time = 1000s;
  }
  struct Looks {
    uid_t uid = 1000;
    pid_t parent = 1;
    std::string cgroup = "0::/init.scope\n";
    std::string name = "python3";
    char state = 'S';
  };
  void add(pid_t pid, Bytes memory, const Looks& looks) {
    list(pid, memory.count);
    const std::string folder = "/proc/" + std::to_string(pid);
    std::string stat = std::to_string(pid) + " (" + looks.name + ") " + looks.state;
    for (int field = 4; field < 40; ++field) stat += " " + std::to_string(field);
    files_[folder + "/stat"] = files_[folder + "/task/1/stat"] = stat;
    files_[folder + "/status"] = "Name:\tx\nPPid:\t" + std::to_string(looks.parent) + "\nUid:\t" +
                                 std::to_string(looks.uid) + "\t0\t0\t0\n";
    files_[folder + "/cgroup"] = looks.cgroup;
    files_[folder + "/comm"] = looks.name + "\n";
  }
  void stop(pid_t pid) { set_state(pid, 'T'); }
  void go_on(pid_t pid) { set_state(pid, 'S'); }
  static void list(pid_t pid, unsigned long long memory) {
    listed.push_back(
        {.pid = static_cast<unsigned>(pid), .used = memory, .gpu_instance = ~0u, .compute_instance = ~0u});
  }

  Status read_file(const std::string& path, std::string& text) const override {
    const auto file = files_.find(path);
    if (file == files_.end()) return FaultySystem::read_file(path, text);
    text = file->second;
    return {};
  }
  std::optional<std::vector<std::string>> list_folder(const std::string& path,
                                                      std::size_t most) const override {
    if (files_.count(path + "/1/stat") > 0) return std::vector<std::string>{"1"};
    return FaultySystem::list_folder(path, most);
  }
  Status owner_of(const std::string& /*path*/, uid_t& owner) const override {
    owner = 0;
    return {};
  }
  UniqueFd open_process(pid_t pid) const override {
    if (files_.count("/proc/" + std::to_string(pid) + "/stat") == 0) return FaultySystem::open_process(pid);
    opened_ = pid;
    return memory_file("process");
  }
  int send_signal(int, int signal) const override {
    signals.emplace_back(opened_, signal);
    return 0;
  }
  void* open_library(const char* name) const override {
    return std::strcmp(name, "libnvidia-ml.so.1") == 0 ? &listed : nullptr;
  }
  void* symbol(void*, const char* name) const override {
    static const std::map<std::string, void*> kFunctions = {
        {"nvmlInit_v2", reinterpret_cast<void*>(succeed)},
        {"nvmlDeviceGetCount_v2", reinterpret_cast<void*>(count_of)},
        {"nvmlDeviceGetHandleByIndex_v2", reinterpret_cast<void*>(handle_of)},
        {"nvmlDeviceGetUUID", reinterpret_cast<void*>(uuid_of)},
        {"nvmlDeviceGetMemoryInfo", reinterpret_cast<void*>(memory_of)},
        {"nvmlDeviceGetComputeRunningProcesses_v3", reinterpret_cast<void*>(processes_on)}};
    const auto found = kFunctions.find(name);
    return found == kFunctions.end() ? nullptr : found->second;
  }

 private:
  void set_state(pid_t pid, char state) {
    const std::string folder = "/proc/" + std::to_string(pid);
    for (const char* file : {"/stat", "/task/1/stat"}) {
      std::string& stat = files_.at(folder + file);
      stat[stat.find(") ") + 2] = state;
    }
  }
  std::map<std::string, std::string> files_;
  mutable pid_t opened_ = 0;
};

constexpr GpuUuid kSecondGpu{{2}};
constexpr pid_t kPid = 4'200'001;  // above all pids that Linux assigns
const char* const kOfJob = "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n";

Settings with(Measure measure) {
  Settings settings;
  settings.unmanaged = measure;
  return settings;
}

// An arbiter on a Board, with a tenant whose process is the test's own process.
struct Scene {
  Board& board;
  Host host;
  std::optional<Guest> guest;

  // `tells`: whether surveys report the memory of the tenant's process.
  Scene(Board& its, Measure measure, unsigned long long used = mebibytes(100).count, bool tells = true)
      : board(its), host(with(measure), its) {
    Board::list(getpid(), used);
    host.gpus.push_back({.uuid = kSecondGpu, .total = gibibytes(1), .name = "Test GPU"});  // unknown to NVML
    host.start();
    come(Bytes{used});
    host.run_until([&] {  // the first survey may have been made before the process had a session on the GPU
      return gpu()["surveyed"] == true && (!tells || !session()["device_bytes"].is_null());
    });
  }
  void come(Bytes pinned) {
    guest.emplace(host);
    REQUIRE(guest->say(Hello{}).find<Welcome>());
    guest->say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = "Test GPU"});
    MemoryUse use;
    use.pinned = pinned;
    guest->say(Usage{.request = 1, .use = use});
  }
  Json gpu() const { return host.status()["gpus"][0]; }
  Json session() const { return host.status()["tenants"][0]["sessions"][0]; }
  std::vector<pid_t> pids() const {
    std::vector<pid_t> all;
    const Json now = gpu();
    for (const Json& process : now["unmanaged"]) all.push_back(process["pid"]);
    return all;
  }
  // Advances the arbiter's clock by `time`, and then waits for another survey.
  void pass(Nanoseconds time) {
    *board.time += time;
    const auto end = std::chrono::steady_clock::now() + 1500ms;
    host.run_until([&] { return std::chrono::steady_clock::now() > end; });
  }
};

using Pids = std::vector<pid_t>;
using Lines = std::vector<std::string>;

TEST_CASE("Processes without a session are unmanaged, except the arbiter's own processes") {
  Board board;
  board.add(kPid, mebibytes(300), {.cgroup = kOfJob});
  board.add(kPid + 1, mebibytes(50), {.uid = 0});
  board.add(kPid + 2, mebibytes(50), {.parent = getpid()});
  Board::list(kPid + 3, mebibytes(50).count);  // the process has ended, or is in another PID namespace
  board.add(kPid + 4, Bytes{~0ull}, {});       // an amount that NVML does not know
  const Scene scene(board, Measure::ignore);
  CHECK(scene.pids() == Pids{kPid, kPid + 1});
  const Json gpu = scene.gpu();
  CHECK(gpu["unmanaged_bytes"] == mebibytes(350).count);
  CHECK(gpu["unmanaged"][0]["uid"] == 1000);
  CHECK(gpu["unmanaged"][0]["job"] == 12);
  CHECK(gpu["unmanaged"][1]["job"].is_null());
  CHECK(gpu["usable_bytes"] == mebibytes(1024 - 350).count);
  CHECK(scene.session()["device_bytes"] == mebibytes(100).count);
}

TEST_CASE("Memory of root's MPS server is not unmanaged, and then the memory of no process is known") {
  Board board;
  SECTION("the server is root's") {
    board.add(kPid, mebibytes(300), {.uid = 0, .name = "nvidia-cuda-mps"});
    const Scene scene(board, Measure::ignore, mebibytes(100).count, false);
    CHECK(scene.pids().empty());
    CHECK(scene.gpu()["unmanaged_bytes"] == 0);
    CHECK(scene.session()["device_bytes"].is_null());
  }
  SECTION("a user's process calls itself so") {
    board.add(kPid, mebibytes(300), {.uid = 1000, .name = "nvidia-cuda-mps"});
    const Scene scene(board, Measure::ignore);
    CHECK(scene.pids() == Pids{kPid});
    CHECK(scene.session()["device_bytes"] == mebibytes(100).count);
  }
}

TEST_CASE("Unmanaged processes are named in the log once, when they have been there for a while") {
  Board board;
  board.add(kPid, mebibytes(300), {.cgroup = kOfJob});
  board.add(kPid + 1, mebibytes(10), {});  // too little memory for a line in the log
  const bool warns = GENERATE(true, false);
  Scene scene(board, warns ? Measure::warn : Measure::ignore);
  scene.pass(1s);
  CHECK(scene.host.new_log_lines().empty());
  scene.pass(5s);
  const Lines warned = {
      "warning: job 12, pid " + std::to_string(kPid) +
      ", uid 1000: has 300 MiB of GPU 0 without being a tenant; the arbiter does not hand out that memory"};
  CHECK(scene.host.new_log_lines() == (warns ? warned : Lines{}));
  scene.pass(5s);
  CHECK(scene.host.new_log_lines().empty());
  CHECK(board.signals.empty());
}

TEST_CASE("Unmanaged processes of users are ended where the site says so, and no others") {
  Board board;
  board.add(kPid, mebibytes(200), {});
  board.add(kPid + 1, mebibytes(200), {.uid = 0});
  board.add(kPid + 2, mebibytes(200), {.uid = 999});
  board.add(kPid + 4, mebibytes(10), {});
  Scene scene(board, Measure::cancel);
  CHECK(board.signals.empty());
  scene.pass(5s);
  const std::vector<std::pair<pid_t, int>> asked = {{kPid, SIGTERM}};
  CHECK(board.signals == asked);
  scene.pass(20s);
  CHECK(board.signals == asked);
  scene.pass(10s);
  const std::vector<std::pair<pid_t, int>> killed = {{kPid, SIGTERM}, {kPid, SIGKILL}};
  CHECK(board.signals == killed);
  scene.pass(40s);
  CHECK(board.signals == killed);
}

TEST_CASE("A process that is in the way on one GPU is ended, even if it is on an unused GPU, too") {
  Board board;
  board.add(kPid, mebibytes(600), {.cgroup = kOfJob});
  listed_on_second.emplace().push_back(listed.back());
  Scene scene(board, Measure::cancel);
  for (int i = 0; i < 20; ++i) scene.pass(2s);
  const std::vector<std::pair<pid_t, int>> ended = {{kPid, SIGTERM}, {kPid, SIGKILL}};
  CHECK(board.signals == ended);
}

TEST_CASE("A process that was never a tenant is ended also where it has stopped itself") {
  Board board;
  board.add(kPid, mebibytes(200), {.state = 'T'});
  Scene scene(board, Measure::cancel);
  for (const Nanoseconds time : {5s, 20s, 10s}) scene.pass(time);
  const std::vector<std::pair<pid_t, int>> killed = {{kPid, SIGTERM}, {kPid, SIGKILL}};
  CHECK(board.signals == killed);
}

// A tenant's process that has more memory on the GPU than its session reports.
struct Liar {
  Process process;
  std::optional<Guest> guest;

  Liar(Board& board, Bytes memory) { board.add(process.pid(), memory, {.cgroup = kOfJob}); }
  void come(Scene& scene, const GpuUuid& gpu, Bytes context) {
    guest.emplace(scene.host, 1000, StepName{.job = 12, .step = 0}, process.pid());
    REQUIRE(guest->say(Hello{}).find<Welcome>());
    guest->say(Attach{.gpu = gpu, .total = gibibytes(1), .name = "Any GPU"});
    MemoryUse use;
    use.context = context;
    guest->say(Usage{.request = 0, .use = use});
  }
};

TEST_CASE("A process that an earlier arbiter served is not ended before it may have come back") {
  Board board;
  Scene scene(board, Measure::cancel);
  Liar served(board, mebibytes(200)), stranger(board, mebibytes(200));
  served.come(scene, kHostGpu, mebibytes(200));
  scene.host.restart();
  scene.come(mebibytes(100));
  *board.time += 10s;
  scene.host.run_until([&] { return scene.host.status()["recovering"] == false; });
  scene.pass(1s);
  scene.pass(6s);
  const std::vector<std::pair<pid_t, int>> asked = {{stranger.process.pid(), SIGTERM}};
  CHECK(board.signals == asked);
  scene.pass(55s);
  CHECK(std::count(board.signals.begin(), board.signals.end(), std::pair{served.process.pid(), SIGTERM}) ==
        1);
}

TEST_CASE("A stopped process that an earlier arbiter served is left alone for minutes") {
  Board board;
  Scene scene(board, Measure::cancel);
  Liar served(board, mebibytes(200));
  served.come(scene, kHostGpu, mebibytes(200));
  board.stop(served.process.pid());
  scene.host.restart();
  served.guest.reset();
  scene.come(mebibytes(100));
  *board.time += 70s;
  scene.host.run_until([&] { return scene.host.status()["recovering"] == false; });
  for (const Nanoseconds time : {1s, 66s, 31s}) scene.pass(time);
  CHECK(board.signals.empty());
  scene.pass(1h);  // longer than the arbiter waits for a stopped process to report
  scene.pass(1s);
  CHECK_FALSE(board.signals.empty());
}

TEST_CASE("A process that goes on has its time to come back, also where others of its job come before it") {
  Board board;
  Scene scene(board, Measure::cancel);
  Liar served(board, mebibytes(200));
  served.come(scene, kHostGpu, mebibytes(200));
  board.stop(served.process.pid());
  scene.host.restart();
  served.guest.reset();
  // Meanwhile another tenant uses the other GPU of the host.
  std::optional<Guest> elsewhere(std::in_place, scene.host);
  REQUIRE(elsewhere->say(Hello{}).find<Welcome>());
  elsewhere->say(Attach{.gpu = kSecondGpu, .total = gibibytes(1), .name = "Test GPU"});
  *board.time += 70s;
  scene.host.run_until([&] { return scene.host.status()["recovering"] == false; });
  for (const Nanoseconds time : {1s, 3600s, 1s}) scene.pass(time);
  REQUIRE(scene.pids() == Pids{served.process.pid()});
  board.go_on(served.process.pid());
  scene.come(mebibytes(100));
  scene.pass(1s);
  scene.pass(50s);
  CHECK(board.signals.empty());
  scene.pass(20s);
  const std::vector<std::pair<pid_t, int>> asked = {{served.process.pid(), SIGTERM}};
  CHECK(board.signals == asked);
}

TEST_CASE(
    "A stopped process that may still report its context is left alone for minutes, and while Slurm stops "
    "it") {
  Board board;
  Liar late(board, mebibytes(200));
  Scene scene(board, Measure::cancel);
  late.guest.emplace(scene.host, 1000, StepName{.job = 12, .step = 0}, late.process.pid());
  REQUIRE(late.guest->say(Hello{}).find<Welcome>());
  board.stop(late.process.pid());
  const bool suspended = GENERATE(true, false);
  if (suspended) {
    Guest root(scene.host, 0);
    root.say(SuspendJob{.step = {.job = 12, .step = 0}, .suspended = 1});
  }
  for (const Nanoseconds time : {1s, 1s, 98s, 480s}) scene.pass(time);
  CHECK(board.signals.empty());
  scene.pass(120s);
  const std::vector<std::pair<pid_t, int>> asked = {{late.process.pid(), SIGTERM}};
  CHECK(board.signals == (suspended ? std::vector<std::pair<pid_t, int>>() : asked));
}

TEST_CASE("Unmanaged memory is also what a tenant's process has beyond what its session may have") {
  Board board;
  Liar liar(board, mebibytes(600));
  Scene scene(board, Measure::cancel);
  const Bytes context = GENERATE(Bytes{}, mebibytes(1));
  liar.come(scene, kHostGpu, context);
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  CHECK(scene.pids() == Pids{liar.process.pid()});
  const Json gpu = scene.gpu();
  CHECK(gpu["unmanaged"][0]["uid"] == 1000);
  CHECK(gpu["unmanaged"][0]["job"] == 12);
  CHECK(gpu["unmanaged"][0]["bytes"] == gpu["unmanaged_bytes"]);
  CHECK(gpu["unmanaged_bytes"] > mebibytes(590).count);
  CHECK(gpu["usable_bytes"] < mebibytes(1024 - 590).count);
  CHECK(board.signals.empty());
  scene.host.new_log_lines();
  scene.pass(5s);
  const Lines lines = scene.host.new_log_lines();
  REQUIRE_FALSE(lines.empty());
  CHECK(lines[0].starts_with("warning: job 12, pid " + std::to_string(liar.process.pid()) +
                             ", uid 1000: has "));
  CHECK(lines[0].ends_with(
      " of GPU 0 beyond what its session reports; the arbiter does not hand out that memory"));
  CHECK(board.signals.empty());
  scene.pass(60s);
  // A session that claims a context may belong to a process with the library, so this process is spared.
  const std::vector<std::pair<pid_t, int>> asked = {{liar.process.pid(), SIGTERM}};
  CHECK(board.signals == (context == Bytes{} ? asked : std::vector<std::pair<pid_t, int>>{}));
}

// Connects repeatedly, each time with a new session, so that at most one survey sees each session.
void rotate(Scene& scene, Liar& liar, unsigned times) {
  for (unsigned i = 0; i < times; ++i) {
    liar.come(scene, kHostGpu, mebibytes(1));
    const auto end = std::chrono::steady_clock::now() + 600ms;
    scene.host.run_until([&] { return std::chrono::steady_clock::now() > end; });
  }
}

TEST_CASE("Hidden memory is that of the process, however short its sessions are") {
  Board board;
  Liar liar(board, mebibytes(600));
  Scene scene(board, Measure::ignore);
  rotate(scene, liar, 6);
  CHECK(scene.pids() == Pids{liar.process.pid()});
  CHECK(scene.gpu()["usable_bytes"] < mebibytes(1024 - 590).count);
}

TEST_CASE("Hidden memory is that of the process, however many sessions it has") {
  Board board;
  Liar liar(board, mebibytes(600));
  Scene scene(board, Measure::ignore);
  std::vector<std::optional<Guest>> others;
  for (int i = 0; i < 20; ++i) {
    liar.come(scene, kHostGpu, mebibytes(8));
    others.push_back(std::exchange(liar.guest, std::nullopt));
  }
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  CHECK(scene.pids() == Pids{liar.process.pid()});
  CHECK(scene.gpu()["unmanaged_bytes"] > mebibytes(570).count);  // a context takes a sixty-fourth of the GPU
                                                                 // at most
  CHECK(scene.gpu()["usable_bytes"] < mebibytes(1024 - 570).count);
}

TEST_CASE("Contexts beyond the usual are hidden memory") {
  Board board;
  Liar liar(board, mebibytes(200));
  Scene scene(board, Measure::ignore);
  liar.come(scene, kHostGpu, mebibytes(200));
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  CHECK(scene.pids() == Pids{liar.process.pid()});
  CHECK(scene.gpu()["unmanaged_bytes"] > mebibytes(180).count);
  CHECK(scene.gpu()["usable_bytes"] > mebibytes(1024 - 202).count);  // no memory is subtracted twice
}

TEST_CASE("Hidden memory up to an eighth of the GPU names nobody, and is not handed out") {
  Board board;
  Liar large(board, mebibytes(600));
  Liar liar(board, mebibytes(120));
  Scene scene(board, Measure::ignore);
  liar.come(scene, kHostGpu, mebibytes(1));
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  // The other process has no session.
  CHECK(scene.pids() == Pids{large.process.pid()});
  CHECK(scene.gpu()["unmanaged_bytes"] == mebibytes(600).count);
  CHECK(scene.gpu()["usable_bytes"] < mebibytes(1024 - 600 - 115).count);
  large.come(scene, kHostGpu, mebibytes(1));
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  // Both processes belong to one tenant, which now hides more than an eighth of the GPU.
  CHECK(scene.pids().size() == 2);
  CHECK(scene.gpu()["unmanaged_bytes"] > mebibytes(590 + 105).count);
  CHECK(scene.gpu()["usable_bytes"] < mebibytes(1024 - 590 - 115).count);
}

TEST_CASE("Hidden memory of all processes of a tenant together names them") {
  Board board;
  Liar first(board, mebibytes(120)), second(board, mebibytes(120));
  Scene scene(board, Measure::warn);
  first.come(scene, kHostGpu, mebibytes(1));
  const bool both = GENERATE(true, false);
  if (both) second.come(scene, kHostGpu, mebibytes(1));
  for (int i = 0; i < 3; ++i) scene.pass(1s);
  const auto tenant = [&] {
    const Json status = scene.host.status();
    for (const Json& its : status["tenants"])
      if (its["job"] == 12) return its;
    return Json();
  };
  if (!both) {
    CHECK(scene.pids() == Pids{second.process.pid()});  // the second process has no session
    CHECK(tenant()["unreported_bytes"] == 0);
    return;
  }
  Pids named = scene.pids();
  std::sort(named.begin(), named.end());
  Pids expected = {first.process.pid(), second.process.pid()};
  std::sort(expected.begin(), expected.end());
  CHECK(named == expected);
  CHECK(tenant()["unreported_bytes"] > mebibytes(200).count);
  CHECK(tenant()["highest_footprint_bytes"] > mebibytes(200).count);
  scene.host.new_log_lines();
  scene.pass(6s);
  CHECK(scene.host.new_log_lines().size() == 2);
  scene.pass(6s);
  CHECK(scene.host.new_log_lines().empty());
}

TEST_CASE("Memory beyond what a process may have counts as far as two of eleven surveys show it") {
  Sights sights;
  CHECK(sights.are_old(1));
  CHECK(sights.add(1, mebibytes(30)) == Bytes{});
  CHECK(sights.add(3, mebibytes(50)) == mebibytes(30));
  CHECK(sights.add(4, mebibytes(1)) == mebibytes(1));
  CHECK(sights.add(13, mebibytes(80)) == mebibytes(50));
  CHECK_FALSE(sights.are_old(23));
  CHECK(sights.are_old(24));
  CHECK(sights.add(24, mebibytes(80)) == Bytes{});
}

TEST_CASE("A session on another GPU spares a process only if the arbiter itself has found that GPU") {
  Board board;
  Liar liar(board, mebibytes(200));
  Scene scene(board, Measure::cancel);
  const auto [gpu, context, spares] = GENERATE(table<GpuUuid, Bytes, bool>(
      {{kSecondGpu, mebibytes(1), true}, {kSecondGpu, Bytes{}, false}, {{{9}}, mebibytes(1), false}}));
  liar.come(scene, gpu, context);
  scene.pass(50s);
  scene.pass(1s);
  CHECK(scene.pids() == Pids{liar.process.pid()});
  CHECK(board.signals.empty());  // the session may not have reported its memory yet
  scene.pass(10s);
  CHECK(board.signals.empty() == spares);
}

TEST_CASE("Users in one user namespace count as its owner where lines about them are bounded") {
  struct Contained : Board {
    std::optional<uid_t> user_namespace_owner(pid_t pid) const override {
      return pid >= kPid ? std::optional<uid_t>(1000) : std::nullopt;
    }
  };
  Contained board;
  for (int i = 0; i < 15; ++i) board.add(kPid + i, mebibytes(20), {.uid = 100'000 + static_cast<uid_t>(i)});
  Scene scene(board, Measure::warn);
  scene.pass(5s);
  CHECK(scene.host.new_log_lines().size() == 10);
}

TEST_CASE("Unmanaged memory is no longer known a few seconds after the last session has ended") {
  Board board;
  board.add(kPid, mebibytes(300), {});
  Scene scene(board, Measure::warn);
  REQUIRE(scene.pids() == Pids{kPid});
  scene.guest->say(Usage{});  // the process has no memory, so it has no reason to reconnect
  scene.guest.reset();
  scene.host.run_until([&] { return scene.host.status()["tenants"].empty(); });
  CHECK(scene.gpu()["surveyed"] == true);
  *scene.board.time += 6s;
  scene.host.run_until([&] { return scene.gpu()["surveyed"] == false; });
  CHECK(scene.pids().empty());
  CHECK(scene.gpu()["usable_bytes"] == gibibytes(1).count);
}

}  // namespace
}  // namespace sharedgpu::test
