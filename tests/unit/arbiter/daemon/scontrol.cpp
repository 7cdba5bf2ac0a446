// SPDX-License-Identifier: Apache-2.0
// The daemon's commands to Slurm by scontrol, which may be missing, fail or hang.
#include "arbiter/daemon/scontrol.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "arbiter/daemon/log.h"
#include "systems.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// A folder whose scontrol is first in the path.
struct ScontrolFolder {
  TemporaryFolder folder;
  std::string path = std::getenv("PATH");
  asio::io_context loop{1};

  ScontrolFolder() {
    setenv("PATH", (folder.path + ":" + path).c_str(), 1);
    setenv("SLURMD_NODENAME", "node7", 1);
    REQUIRE(log::open("warning", folder.path + "/log").ok());
  }
  ~ScontrolFolder() {
    setenv("PATH", path.c_str(), 1);
    unsetenv("SLURMD_NODENAME");
    static_cast<void>(log::open("off", {}));
  }
  void write(const std::string& body, const std::string& queue = "echo \"$5 $5_N/A\"") const {
    write_program("scontrol", "echo \"$@\" >>" + folder.path + "/calls\n" + body);
    write_program("squeue", queue);
  }
  void write_program(const char* name, const std::string& body) const {
    const std::string file = folder.path + "/" + name;
    std::ofstream(file) << "#!/bin/bash\n" + body + "\n";
    chmod(file.c_str(), 0755);
  }
  std::string text_of(const char* name) const {
    std::stringstream text;
    text << std::ifstream(folder.path + "/" + name).rdbuf();
    return text.str();
  }
  bool logged(const std::string& what) const { return text_of("log").find(what) != std::string::npos; }
};

TEST_CASE("Commands to Slurm run one after the other") {
  ScontrolFolder site;
  site.write("[[ $1 != -o ]] || echo JobId=$4 JobState=RUNNING Reason=None ExitCode=0:0");
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.drain_node("sharedgpu: GPU 0 is lost: Xid 79");
  scontrol.requeue(12);
  site.loop.run();
  CHECK(site.text_of("calls") ==
        "update nodename=node7 state=DRAIN reason=sharedgpu: GPU 0 is lost: Xid 79\n"
        "-o show job 12\nrequeue 12\n");
  CHECK(site.text_of("log").empty());
}

TEST_CASE("The address of a node is found, or is empty") {
  ScontrolFolder site;
  std::string found = "none";
  SECTION("by NodeAddr") {
    site.write("echo NodeName=n3 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=h3 Version=22.05");
    Scontrol scontrol(site.loop, kHostSystem);
    scontrol.find_address("n3", [&](const std::string& address) { found = address; });
    site.loop.run();
    CHECK(found == "10.1.2.3");
    CHECK(site.text_of("calls") == "-o show node n3\n");
  }
  SECTION("where Slurm does not know it") {
    site.write("echo Node n3 not found; exit 1");
    Scontrol scontrol(site.loop, kHostSystem);
    scontrol.find_address("n3", [&](const std::string& address) { found = address; });
    site.loop.run();
    CHECK(found.empty());
  }
}

TEST_CASE("The jobs of a node are those that span nodes and have units, with the times of their start") {
  ScontrolFolder site;
  site.write("", "echo \"$*\" >>" + site.folder.path + R"sh(/calls
echo '41    2   2026-11-26T21:13:11   gres:sharedgpu:2   N/A   N/A  N/A'
echo '42    1   2026-11-26T21:13:12   gres:sharedgpu:2   N/A   N/A  N/A'
echo '43    3   2026-11-26T21:13:13   N/A   N/A   N/A  N/A'
echo '44    3   2026-11-26T21:13:14   N/A   N/A   N/A  gres/gpu:1,gres/sharedgpu:a100:1'
echo '45    2   2026-11-26T21:13:15   gres:notsharedgpu:1   N/A   N/A  N/A'
echo '46    2   2026-11-26T21:13:16   N/A   N/A   N/A  N/A  cpu=4,mem=1G,gres/sharedgpu=16'
echo 'slurm_load_jobs error: x')sh");
  Scontrol scontrol(site.loop, kHostSystem);
  std::vector<std::pair<std::uint32_t, Nanoseconds>> found;
  scontrol.find_jobs("node7", [&](const std::vector<StartedJob>& jobs) {
    for (const StartedJob& job : jobs) found.emplace_back(job.number, job.started);
  });
  site.loop.run();
  CHECK(found == decltype(found){{41, 1795727591s}, {44, 1795727594s}, {46, 1795727596s}});
  CHECK(site.text_of("calls").starts_with("-h -w node7 -t running,completing,configuring -O JobID"));
}

TEST_CASE("PrivateData of Slurm is found, and is none without Slurm") {
  ScontrolFolder site;
  const auto found = [&site] {
    std::optional<std::string> text;
    Scontrol scontrol(site.loop, kHostSystem);
    scontrol.find_private_data([&](const std::string& its) { text = its; });
    site.loop.restart();
    site.loop.run();
    return text.value_or("no answer");
  };
  site.write("printf 'PriorityType = x\\nPrivateData             = jobs,usage\\nPrologFlags = y\\n'");
  CHECK(found() == "jobs,usage");
  CHECK(site.text_of("calls") == "show config\n");
  site.write("exit 1");
  CHECK(found().empty());
  setenv("PATH", site.folder.path.c_str(), 1);
  site.write_program("sh", "[ \"$1\" = -c ] && eval \"$2\"");
  unlink((site.folder.path + "/scontrol").c_str());
  CHECK(found() == "none");
}

TEST_CASE("The name of this node is that of the only node with this host's name") {
  ScontrolFolder site;
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const std::string own(host.data(), std::strcspn(host.data(), "."));
  std::string nodes =
      "echo NodeName=n1 Arch=x NodeAddr=n1 NodeHostName=other Version=22.05; echo NodeName=n2 "
      "Arch=x NodeAddr=n2 NodeHostName=" +
      own;
  std::string expected = "n2";
  SECTION("short") { nodes += " Version=22.05"; }
  SECTION("with its domain") { nodes += ".example.org Version=22.05"; }
  SECTION("one that only begins with it") {
    nodes += "x Version=22.05";
    expected = "";
  }
  SECTION("two") {
    nodes += " Version=22.05; echo NodeName=n3 Arch=x NodeHostName=" + own + " Version=22.05";
    expected = "";
  }
  site.write(nodes);
  Scontrol scontrol(site.loop, kHostSystem);
  std::string found = "none";
  scontrol.find_own_name([&](const std::string& name) { found = name; });
  site.loop.run();
  CHECK(found == expected);
}

TEST_CASE("Equal questions to Slurm are all answered, by one command") {
  ScontrolFolder site;
  site.write("echo NodeName=n3 NodeAddr=10.1.2.3 X=y");
  Scontrol scontrol(site.loop, kHostSystem);
  unsigned answers = 0;
  scontrol.drain_node("one that runs meanwhile");
  for (int i = 0; i < 3; ++i)
    scontrol.find_address("n3", [&](const std::string& address) { answers += address == "10.1.2.3"; });
  site.loop.run();
  CHECK(answers == 3);
  CHECK(site.text_of("calls") ==
        "update nodename=node7 state=DRAIN reason=one that runs meanwhile\n-o show node n3\n");
}

TEST_CASE("A job that has just completed is not requeued, and a job that has failed is requeued") {
  ScontrolFolder site;
  bool stays = true;
  SECTION("right") { site.write("echo JobId=12 JobState=COMPLETED Reason=None ExitCode=0:0"); }
  SECTION("not over, but right") { site.write("echo JobId=12 JobState=COMPLETING Reason=None ExitCode=0:0"); }
  SECTION("wrong") {
    stays = false;
    site.write("echo JobId=12 JobState=COMPLETING Reason=None ExitCode=1:0");
  }
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.requeue(12);
  site.loop.run();
  CHECK(site.text_of("calls") == (stays ? "-o show job 12\n" : "-o show job 12\nrequeue 12\n"));
}

TEST_CASE("An element of an array is requeued by its place in it") {
  ScontrolFolder site;
  site.write("[[ $1 != -o ]] || echo JobId=12 JobState=RUNNING Reason=None ExitCode=0:0",
             "printf '%s\\n' '11 12_1' '12 12_3' '12 12_[4-5]'");
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.requeue(12);
  site.loop.run();
  CHECK(site.text_of("calls") == "-o show job 12\nrequeue 12_3\n");
}

constexpr ScontrolTimes kShort{.patience = 300ms, .pause = 50ms};

TEST_CASE("Slurm is asked for the name of this node until it answers") {
  ScontrolFolder site;
  site.write("[[ -e $0.tried ]] || { touch $0.tried; exit 1; }; echo NodeName=n1 X=y NodeHostName=other V=1");
  Scontrol scontrol(site.loop, kHostSystem, kShort);
  std::vector<std::string> found;
  scontrol.find_own_name([&](const std::string& name) { found.push_back(name); });
  site.loop.run();
  CHECK(found == std::vector<std::string>{""});
  CHECK(site.text_of("calls") == "-o show node\n-o show node\n");
}

TEST_CASE("A failed scontrol is logged, and tried again after the next command") {
  ScontrolFolder site;
  const std::string once = "[[ $* != *first* || -e $0.tried ]] || { touch $0.tried; ";
  SECTION("its status says so") {
    site.write(once + "exit 1; }");
    Scontrol scontrol(site.loop, kHostSystem, kShort);
    scontrol.drain_node("first");
    scontrol.drain_node("second");
    site.loop.run();
    CHECK(site.logged("reason=first: has ended with status 1; it is tried again"));
  }
  SECTION("it hangs") {
    site.write(once + "exec sleep 60; }");
    Scontrol scontrol(site.loop, kHostSystem, kShort);
    scontrol.drain_node("first");
    scontrol.drain_node("second");
    site.loop.run();
    CHECK(site.logged("reason=first: has not ended in time; it is tried again"));
  }
  const std::string drain = "update nodename=node7 state=DRAIN reason=";
  CHECK(site.text_of("calls") == drain + "first\n" + drain + "second\n" + drain + "first\n");
}

TEST_CASE("A command that fails again and again is given up, and the processes that it started end") {
  ScontrolFolder site;
  site.write("exit 1", "sleep 61 & echo $! >" + site.folder.path + "/child; wait");
  Scontrol scontrol(site.loop, kHostSystem, {.patience = 100ms, .pause = 10ms});
  scontrol.requeue(12);
  scontrol.requeue(12);  // the first command runs and the second one waits, so the third one is dropped
  scontrol.requeue(12);
  site.loop.run();
  CHECK(site.text_of("calls").empty());
  const std::string log = site.text_of("log");
  CHECK(log.ends_with("scontrol requeue 12: has not ended in time\n"));
  CHECK(std::count(log.begin(), log.end(), '\n') == 12);
  const pid_t child = std::stoi(site.text_of("child"));
  const auto is_gone = [&] {
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name, state;
    return !(stat >> pid >> name >> state) || state == "Z";
  };
  for (int i = 0; i < 200 && !is_gone(); ++i) usleep(10'000);
  CHECK(is_gone());
}

TEST_CASE("Without scontrol the log says so") {
  ScontrolFolder site;
  setenv("PATH", site.folder.path.c_str(), 1);
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.drain_node("first");
  site.loop.run();
  CHECK(site.logged("scontrol update nodename=node7 state=DRAIN reason=first: No such file or directory"));
}

TEST_CASE("A child process that cannot be watched is ended, and started again") {
  struct Host : System {
    mutable int failures = 2;
    UniqueFd open_process(pid_t pid) const override {
      return failures-- > 0 ? UniqueFd() : System::open_process(pid);
    }
  } host;
  ScontrolFolder site;
  site.write("[[ -e $0.tried ]] || { touch $0.tried; exec sleep 60; }");
  Scontrol scontrol(site.loop, host, kShort);
  scontrol.drain_node("first");
  site.loop.run();
  CHECK(site.logged("cannot watch its process, so it is killed; it is tried again"));
  CHECK(host.failures < 0);
}

}  // namespace
}  // namespace sharedgpu::test
