// SPDX-License-Identifier: Apache-2.0
#include "spank/supervisor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

using namespace sharedgpu;

namespace {

// Runs a script as the supervisor. The script writes its state into a file. Returns the text of this file.
std::string report_of(const std::string& config, const std::vector<std::string>& environment) {
  char folder[] = "/tmp/sharedgpu-supervisor.XXXXXX";
  REQUIRE(mkdtemp(folder) != nullptr);
  std::string place = folder;
  std::string script = place + "/command";
  std::ofstream(script) << "#!/bin/sh\n"
                        << "{ echo \"arguments $*\"; echo \"mark $MARK\"; echo \"fds\" $(ls /proc/$$/fd)\n"
                        << "  read pid name state parent group session rest </proc/$$/stat\n"
                        << "  echo \"folder $(pwd)\"; echo \"session leader elsewhere\" $((session != "
                        << getsid(0) << ")); } >" << place << "/part\n"
                        << "mv " << place << "/part " << place << "/whole\n";
  REQUIRE(chmod(script.c_str(), 0700) == 0);
  CHECK(start_supervisor(script, config, environment).empty());
  std::string whole = place + "/whole";
  for (int i = 0; i < 2000 && access(whole.c_str(), F_OK) != 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::ifstream file(whole);
  std::ostringstream text;
  text << file.rdbuf();
  unlink(whole.c_str());
  unlink(script.c_str());
  rmdir(folder);
  return text.str();
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("the supervisor is started apart from its starter") {
  constexpr int kLeaked = 77;  // stands for a socket of slurmd; no shell uses this number
  REQUIRE(dup2(STDERR_FILENO, kLeaked) == kLeaked);
  std::vector<std::string> environment = own_environment();
  environment.emplace_back("MARK=here");
  std::string report = report_of("/a b.conf", environment);
  close(kLeaked);
  INFO(report);
  CHECK(contains(report, "arguments supervise --config /a b.conf --tenants jobs\n"));
  CHECK(contains(report, "mark here\n"));
  CHECK(contains(report, "folder /\n"));
  CHECK(contains(report, "session leader elsewhere 1\n"));
  CHECK(contains(report, "fds 0 1 "));
  CHECK_FALSE(contains(report, " 77"));
  // All children have been reaped.
  CHECK(waitpid(-1, nullptr, WNOHANG) == -1);
  CHECK(errno == ECHILD);
}

TEST_CASE("without a configuration file none is named") {
  CHECK(contains(report_of("", own_environment()), "arguments supervise --tenants jobs\n"));
}

TEST_CASE("a missing command is an error") {
  CHECK(start_supervisor("/nowhere/sharedgpu", "", {}) == "/nowhere/sharedgpu: No such file or directory");
  CHECK(start_supervisor("/dev/null", "", {}) == "/dev/null: Permission denied");
}

TEST_CASE("the environment and the command line of another process can be read") {
  CHECK(environment_of(getpid()).size() > 0);
  CHECK(environment_of(0).empty());
  CHECK(command_line_of(getpid()).size() > 0);
  CHECK(command_line_of(0).empty());
}

TEST_CASE("the arbiter gets the name that slurmd was given for the node") {
  using Words = std::vector<std::string>;
  CHECK(with_node_name({"A=1"}, {"slurmd", "-D", "-N", "node7"}) == Words{"A=1", "SLURMD_NODENAME=node7"});
  CHECK(with_node_name({}, {"slurmd", "-Nnode7", "-D"}) == Words{"SLURMD_NODENAME=node7"});
  CHECK(with_node_name({}, {"slurmd", "-D"}).empty());
  CHECK(with_node_name({}, {"slurmd", "-N"}).empty());
  CHECK(with_node_name({"SLURMD_NODENAME=own"}, {"slurmd", "-N", "node7"}) == Words{"SLURMD_NODENAME=own"});
}
