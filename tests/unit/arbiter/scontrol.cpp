// SPDX-License-Identifier: Apache-2.0
// What Slurm is told by scontrol, which may be missing, fail or hang.
#include "arbiter/daemon/scontrol.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <asio/io_context.hpp>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "arbiter/daemon/log.h"
#include "systems.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// A folder whose scontrol is first in the path.
struct Site {
  TemporaryFolder folder;
  std::string path = std::getenv("PATH");
  asio::io_context loop{1};

  Site() {
    setenv("PATH", (folder.path + ":" + path).c_str(), 1);
    setenv("SLURMD_NODENAME", "node7", 1);
    REQUIRE(log::open("warning", folder.path + "/log").ok());
  }
  ~Site() {
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

TEST_CASE("Slurm is told one thing after the other") {
  Site site;
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
  Site site;
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

TEST_CASE("A job that has ended right a moment before is not requeued, and one that has failed is") {
  Site site;
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
  Site site;
  site.write("[[ $1 != -o ]] || echo JobId=12 JobState=RUNNING Reason=None ExitCode=0:0",
             "printf '%s\\n' '11 12_1' '12 12_3' '12 12_[4-5]'");
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.requeue(12);
  site.loop.run();
  CHECK(site.text_of("calls") == "-o show job 12\nrequeue 12_3\n");
}

constexpr ScontrolTimes kShort{.patience = 300ms, .pause = 50ms};

TEST_CASE("An scontrol that fails is told of, the next one runs, and it is tried again") {
  Site site;
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

TEST_CASE("What goes on failing is given up, and what was started for it ends") {
  Site site;
  site.write("exit 1", "sleep 61 & echo $! >" + site.folder.path + "/child; wait");
  Scontrol scontrol(site.loop, kHostSystem, {.patience = 100ms, .pause = 10ms});
  scontrol.requeue(12);
  scontrol.requeue(12);  // runs already, or waits: then once more is too much
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
  Site site;
  setenv("PATH", site.folder.path.c_str(), 1);
  Scontrol scontrol(site.loop, kHostSystem);
  scontrol.drain_node("first");
  site.loop.run();
  CHECK(site.logged("scontrol update nodename=node7 state=DRAIN reason=first: No such file or directory"));
}

TEST_CASE("A child that cannot be watched is ended") {
  struct Host : System {
    UniqueFd open_process(pid_t) const override { return {}; }
  } host;
  Site site;
  site.write("exec sleep 60");
  Scontrol scontrol(site.loop, host);
  scontrol.drain_node("first");
  site.loop.run();
  CHECK(site.logged("cannot be watched"));
}

}  // namespace
}  // namespace sharedgpu::test
