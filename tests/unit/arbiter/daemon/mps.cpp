// SPDX-License-Identifier: Apache-2.0
// The control daemon of MPS is started, watched and found again. A script replaces the control daemon.
#include "arbiter/daemon/mps.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "host.h"

namespace sharedgpu::test {
namespace {

// Puts the script into the PATH as the control daemon, or ensures that the PATH has no control daemon. The
// script records its arguments.
class StandIn {
 public:
  explicit StandIn(const std::string& script = kServes) {
    write(script);
    setenv("PATH", (folder_.path + ":" + before_).c_str(), 1);
    setenv("MPS_STARTS", starts_file().c_str(), 1);
  }
  ~StandIn() {
    setenv("PATH", before_.c_str(), 1);
    unsetenv("MPS_STARTS");
  }
  StandIn(const StandIn&) = delete;
  StandIn& operator=(const StandIn&) = delete;
  void write(const std::string& script) const {
    const std::string path = folder_.path + "/nvidia-cuda-mps-control";
    std::filesystem::remove(path);
    if (script.empty()) return;
    std::ofstream(path) << "#!/bin/bash\necho \"$* $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY\" "
                           ">>\"$MPS_STARTS\"\n"
                        << script;
    REQUIRE(chmod(path.c_str(), 0755) == 0);
  }
  std::vector<std::string> starts() const {
    std::ifstream file(starts_file());
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // Prints some attributes of its process, creates the files of a control daemon that serves, and then
  // sleeps.
  static constexpr char kServes[] =
      "umask; readlink /proc/self/fd/0; ps -o sid= -p $$ | tr -d ' '; echo wrong >&2\n"
      "trap - PIPE; trap -p PIPE\n"
      "echo $$ >\"$CUDA_MPS_PIPE_DIRECTORY/nvidia-cuda-mps-control.pid\"\n"
      "echo x >\"$CUDA_MPS_PIPE_DIRECTORY/control\"\n"
      "exec -a nvidia-cuda-mps-control sleep 1000\n";

 private:
  std::string starts_file() const { return folder_.path + "/starts"; }
  TemporaryFolder folder_;
  std::string before_ = getenv("PATH");
};

struct Served {
  TemporaryFolder folder;
  asio::io_context loop{1};
  unsigned changes = 0;
  std::optional<Mps> mps;

  Served() {
    REQUIRE(log::open("info", folder.path + "/log").ok());
    begin();
  }
  ~Served() {
    if (const pid_t pid = daemon(); pid > 0) kill(pid, SIGKILL);
    mps.reset();
    static_cast<void>(log::open("off", {}));
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
  }
  void begin() {
    mps.emplace(loop, kHostSystem, pipes(), logs(), [this] { ++changes; });
    mps->start();
  }
  std::string pipes() const { return folder.path + "/run/mps"; }
  std::string logs() const { return folder.path + "/state/mps"; }
  std::string text_of(const std::string& path) const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  pid_t daemon() const {
    pid_t pid = 0;
    std::ifstream(pipes() + "/nvidia-cuda-mps-control.pid") >> pid;
    return pid;
  }
  bool logged(const std::string& line) const {
    return text_of(folder.path + "/log").find(line) != std::string::npos;
  }
  void run_until(const std::function<bool()>& holds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds()) {
      REQUIRE(std::chrono::steady_clock::now() < end);
      loop.restart();
      loop.run_one_for(std::chrono::milliseconds(10));
    }
  }
};

mode_t mode_of(const std::string& path) {
  struct stat status = {};
  REQUIRE(stat(path.c_str(), &status) == 0);
  return status.st_mode & 0777;
}

TEST_CASE("The control daemon is started for all users, and serves as soon as its pipe is there") {
  const StandIn stand_in;
  const mode_t before = umask(077);
  Served served;
  CHECK(umask(before) == 077);
  CHECK_FALSE(served.mps->serves());
  served.run_until([&] { return served.mps->serves(); });
  CHECK(served.changes == 1);
  CHECK(stand_in.starts() == std::vector<std::string>{"-f -M " + served.pipes() + " " + served.logs()});
  CHECK(mode_of(served.pipes()) == 0755);
  CHECK(mode_of(served.logs()) == 0700);
  CHECK(mode_of(served.logs() + "/control.out") == 0600);
  // The daemon runs in a POSIX session of its own, and its output goes into a file.
  CHECK(served.text_of(served.logs() + "/control.out") ==
        "0022\n/dev/null\n" + std::to_string(served.daemon()) + "\nwrong\n");
  CHECK(served.logged("Mps: nvidia-cuda-mps-control started, pid " + std::to_string(served.daemon())));
}

TEST_CASE("The next arbiter finds the control daemon of the one before, and starts no second") {
  const StandIn stand_in;
  Served served;
  served.run_until([&] { return served.mps->serves(); });
  const pid_t first = served.daemon();
  served.begin();
  CHECK(served.mps->serves());
  CHECK(served.changes == 2);
  CHECK(stand_in.starts().size() == 1);
  CHECK(served.logged("Mps: uses the control daemon that an earlier arbiter started"));
  // The arbiter watches the daemon that it found like a daemon that it started.
  kill(first, SIGKILL);
  waitpid(first, nullptr, 0);
  served.run_until([&] { return !served.mps->serves(); });
  CHECK(served.changes == 3);
  CHECK(served.logged("Mps: the control daemon has ended; see " + served.logs()));
}

TEST_CASE(
    "A control daemon that ends is restarted, and the old one's files are not taken for the new one's") {
  const StandIn stand_in;
  Served served;
  served.run_until([&] { return served.mps->serves(); });
  const pid_t first = served.daemon();
  stand_in.write("exec sleep 3\n");  // the script makes no pipe
  kill(first, SIGKILL);
  served.run_until([&] { return !served.mps->serves(); });
  CHECK(served.logged("Mps: the control daemon has ended by signal 9; see " + served.logs()));
  CHECK(waitpid(first, nullptr, WNOHANG) == -1);  // the arbiter has reaped the script
  served.run_until([&] { return stand_in.starts().size() == 2; });
  CHECK_FALSE(std::filesystem::exists(served.pipes() + "/control"));
  CHECK(served.daemon() == 0);
  CHECK_FALSE(served.mps->serves());
  CHECK(served.changes == 2);
}

TEST_CASE("A failure to start the control daemon is logged") {
  const StandIn stand_in("");
  setenv("PATH", "/nonexistent", 1);
  Served served;
  CHECK(served.logged("Mps: cannot start nvidia-cuda-mps-control: No such file or directory"));
  CHECK_FALSE(served.mps->serves());
  CHECK(served.changes == 0);
  setenv("PATH", "/usr/bin:/bin", 1);
}

TEST_CASE("The exit status of a control daemon that fails is logged, and the daemon is started again") {
  const StandIn stand_in("exit 3\n");
  Served served;
  served.run_until([&] { return served.logged("has ended with status 3; see " + served.logs()); });
  CHECK(served.changes == 0);
  stand_in.write(StandIn::kServes);
  served.run_until([&] { return served.mps->serves(); });
  CHECK(served.changes == 1);
}

TEST_CASE("Only a living process of that name is a control daemon") {
  const TemporaryFolder folder;
  const auto find = [&](const std::string& pid, const std::string& command, int error = 0) {
    struct Faulty : FaultySystem {
      std::string words;
      Status read_file(const std::string& path, std::string& text) const override {
        if (!path.ends_with("/cmdline")) return FaultySystem::read_file(path, text);
        text = words;
        return {};
      }
    } system;
    system.words = command;
    system.processes = error;
    std::ofstream(folder.path + "/nvidia-cuda-mps-control.pid") << pid;
    return static_cast<bool>(Mps::find(system, folder.path));
  };
  const std::string own = std::to_string(getpid());
  const std::string name = "nvidia-cuda-mps-control";
  const std::string script = "/bin/bash" + std::string(1, '\0') + "/usr/bin/" + name;
  CHECK(find(own, name));
  CHECK(find(own, script + std::string(1, '\0') + "-f"));
  CHECK_FALSE(find(own, name + "-not"));
  CHECK_FALSE(find(own, ""));
  CHECK_FALSE(find("", name));
  CHECK_FALSE(find("0", name));
  CHECK_FALSE(find("-1", name));
  CHECK_FALSE(find("x", name));
  CHECK_FALSE(find(own, name, ESRCH));
  CHECK_FALSE(Mps::find(kHostSystem, folder.path + "/none"));
}

TEST_CASE("A program on two GPUs has the threads of the GPU on which deadlines leave fewer threads") {
  const StandIn stand_in;
  Settings settings;
  settings.mps = true;
  settings.policy = "deadline";
  Host host(settings);
  host.gpus.push_back({.uuid = {{2}}, .total = gibibytes(1), .name = "Other"});
  host.start();
  Guest slurmstepd(host), urgent(host, kUser, StepName{.job = 12, .step = 0});
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = {}};
  job.options.deadline = std::chrono::milliseconds(100);
  REQUIRE(slurmstepd.say(job).find<RegisterReply>()->accepted == 1);
  REQUIRE(urgent.say(Hello{}).find<Welcome>());
  REQUIRE(urgent.say(Attach{.gpu = kHostGpu, .total = gibibytes(1), .name = {}}).find<Attached>());
  RegisterJob below{.step = {.job = 13, .step = 0}, .uid = kUser, .options = {}};
  below.options.gpus = 2;
  below.options.priority = -1;
  const auto threads = [&] { return slurmstepd.say(below).find<RegisterReply>()->threads; };
  host.run_until([&] { return threads() == 100; });
  urgent.say(Deadlines{.met = 0, .missed = 1});
  CHECK(threads() == 50);
}

TEST_CASE("Programs get a number of threads only while MPS serves") {
  const StandIn stand_in;
  Settings settings;
  settings.mps = true;
  Host host(settings);
  host.gpus.push_back({.uuid = {{2}}, .total = gibibytes(1), .name = "Other"});
  host.start();
  RunRequest request;
  request.options.share_request = 20;
  request.options.share_limit = 40;
  const auto threads = [&] { return Guest(host, kUser).say(request).find<RunReply>()->threads; };
  CHECK(threads() == 0);
  host.run_until([&] { return threads() == 40; });
  Guest slurmstepd(host);
  RegisterJob job{.step = {.job = 12, .step = 0}, .uid = kUser, .options = request.options};
  CHECK(slurmstepd.say(job).find<RegisterReply>()->threads == 40);
  job.step.job = 13;
  job.options.share_limit = 0;
  CHECK(slurmstepd.say(job).find<RegisterReply>()->threads == 100);
  pid_t pid = 0;
  std::ifstream(host.folder.path + "/mps/nvidia-cuda-mps-control.pid") >> pid;
  REQUIRE(pid > 0);
  kill(pid, SIGKILL);
  host.run_until([&] { return threads() == 0; });
}

TEST_CASE("An arbiter without MPS logs a control daemon that it finds") {
  const StandIn stand_in;
  Settings settings;
  settings.mps = true;
  Host host(settings);
  host.start();
  pid_t pid = 0;
  host.run_until([&] {
    std::ifstream(host.folder.path + "/mps/nvidia-cuda-mps-control.pid") >> pid;
    return Mps::find(kHostSystem, host.folder.path + "/mps").get() >= 0;
  });
  host.settings.mps = false;
  host.new_log_lines();
  host.arbiter.reset();
  host.restart_keeping_log();
  CHECK(host.new_log_lines() == std::vector<std::string>{"warning: Mps=no: the control daemon of an earlier "
                                                         "arbiter still runs; see sharedgpu.conf(5)"});
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace sharedgpu::test
