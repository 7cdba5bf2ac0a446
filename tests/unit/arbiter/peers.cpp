// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/peers.h"

#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

using Step = std::optional<StepName>;

TEST_CASE("The task is read from the cgroups of v1 and v2") {
  using Task = std::optional<std::uint32_t>;
  CHECK(task_of_cgroup("9:name=systemd:/\n4:memory:/slurm_node1/uid_1000/job_12/step_3/task_7\n") == Task(7));
  CHECK(task_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n") == Task(0));
  CHECK(task_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_special\n") == Task());
  CHECK(task_of_cgroup("0::/task_3/slurmstepd.scope/job_7/step_0\n") == Task());
  CHECK(task_of_cgroup("") == Task());
}

TEST_CASE("Steps by their cgroups") {
  CHECK(step_of_cgroup("9:name=systemd:/\n4:memory:/slurm_node1/uid_1000/job_12/step_3/task_0\n") ==
        Step(StepName{12, 3}));
  CHECK(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_batch/task_0\n") == Step(StepName{12, 0xfffffffb}));
  CHECK(step_of_cgroup("0::/system.slice/node1_slurmstepd.scope/job_7/step_0/user/task_0\n") ==
        Step(StepName{7, 0}));
  CHECK(step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_extern/user") ==
        Step(StepName{7, 0xfffffffc}));
  CHECK(step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_interactive/user\n") ==
        Step(StepName{7, 0xfffffffa}));
  CHECK(step_of_cgroup("0::/docker/abc/system.slice/slurmstepd.scope/job_7/step_1/user\n") ==
        Step(StepName{7, 1}));
}

TEST_CASE("Processes in no step") {
  for (const char* text :
       {"", "0::/\n", "0::/user.slice/user-1000.slice/session-1.scope\n", "garbage", ":::::", "0::",
        "0::/system.slice/slurmstepd.scope/system\n", "0::/system.slice/slurmstepd.scope/job_7\n",
        "0::/system.slice/slurmstepd.scope/job_7/step_\n", "0::/system.slice/slurmstepd.scope/job_x/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_0/step_0\n",
        "0::/system.slice/slurmstepd.scope/job_99999999999/step_0\n"})
    CHECK_FALSE(step_of_cgroup(text));
}

TEST_CASE("Folders that a user can make claim no job") {
  for (const char* text :
       {"0::/user.slice/user-1000.slice/user@1000.service/x_slurmstepd.scope/job_7/step_0\n",
        "0::/user.slice/user-1000.slice/slurm/uid_1000/job_7/step_0\n", "0::/job_7/step_0\n",
        "0::/machine.slice/job_7/step_0\n"})
    CHECK_FALSE(step_of_cgroup(text));
  // The outermost counts: what lies in a job's own part of the tree is the job's.
  CHECK(
      step_of_cgroup("0::/system.slice/slurmstepd.scope/job_7/step_0/user/slurmstepd.scope/job_8/step_0\n") ==
      Step(StepName{7, 0}));
}

TEST_CASE("A component of a heterogeneous job") {
  CHECK(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_3+1/task_0\n") == Step(StepName{12, 3}));
  CHECK_FALSE(step_of_cgroup("4:memory:/slurm/uid_0/job_12/step_+1/task_0\n"));
}

// A root folder with the files that are written into it.
class Root {
 public:
  Root() { REQUIRE(mkdtemp(path_.data()) != nullptr); }
  ~Root() { std::filesystem::remove_all(path_); }
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(path_ + file).parent_path());
    std::ofstream(path_ + file) << text;
  }
  Step step_of(pid_t pid) const { return step_of_process(pid, path_); }

 private:
  std::string path_ = "/tmp/sgpu-peers.XXXXXX";
};

TEST_CASE("Steps whose job's cgroup is named by SLUID") {
  const std::string folder = "/system.slice/n1_slurmstepd.scope/sAB12CD34EF56G/step_";
  Root root;
  root.write("/proc/70/cgroup", "0::" + folder + "batch/user/task_0\n");
  CHECK_FALSE(root.step_of(70));
  // The slurmstepd of the step, and beside it a process that is not root's.
  root.write("/sys/fs/cgroup" + folder + "batch/slurm/cgroup.procs", "60\n61\n");
  root.write("/proc/60/status", "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n");
  root.write("/proc/60/cmdline", "slurmstepd: [13.batch]");
  CHECK_FALSE(root.step_of(70));
  root.write("/proc/61/status", "Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n");
  root.write("/proc/61/cmdline", std::string("slurmstepd: [12.batch]\0\0", 24));
  CHECK(root.step_of(70) == Step(StepName{12, 0xfffffffb}));
  // What a user can make does not count, nor what lies elsewhere.
  for (const std::string& other :
       {"/user.slice" + folder + "batch/user", std::string("/system.slice/n1_slurmstepd.scope/system"),
        std::string("/system.slice/n1_slurmstepd.scope/other/sAB12CD34EF56G/step_batch/user")}) {
    root.write("/proc/71/cgroup", "0::" + other + "\n");
    root.write("/sys/fs/cgroup" + other + "/slurm/cgroup.procs", "61\n");
    CHECK_FALSE(root.step_of(71));
  }
  root.write("/proc/61/cmdline", "slurmstepd: [sAB12CD34EF56G.batch]");
  CHECK_FALSE(root.step_of(70));
}

TEST_CASE("Step names") {
  CHECK(format_step(0xfffffffb) == "batch");
  CHECK(format_step(12) == "12");
  CHECK(parse_step("batch") == std::optional<std::uint32_t>(0xfffffffb));
  CHECK_FALSE(parse_step("12x"));
}

TEST_CASE("A peer is who the kernel says it is") {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0);
  Peer peer;
  bool passes = false;
  CHECK(identify(ends[0], peer, passes) == "");
  CHECK(peer.pid == getpid());
  CHECK(peer.uid == getuid());
  CHECK(peer.started == start_time_of(getpid()));
  CHECK(peer.started != 0);
  CHECK(peer.pidfd);
  CHECK(start_time_of(0) == 0);
  close(ends[0]);
  close(ends[1]);
}

// The process that `parent` has made.
pid_t child_of(pid_t parent) {
  const std::string number = std::to_string(parent);
  pid_t child = 0;
  std::ifstream("/proc/" + number + "/task/" + number + "/children") >> child;
  return child;
}

TEST_CASE("Pids are those of the viewer's own namespace") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  // Three processes, each the first in a PID namespace of its own within that of the one before.
  const pid_t outer = fork();
  if (outer == 0) {
    for (int level = 0; level < 2; ++level) {
      if (unshare(CLONE_NEWPID) != 0) _exit(errno == EPERM ? 77 : 1);
      const pid_t made = fork();
      if (made != 0 && level == 1 && write(ends[1], &made, sizeof made) != sizeof made) _exit(1);
      if (made != 0) break;
    }
    for (;;) pause();
  }
  close(ends[1]);
  pid_t inner_for_middle = 0;
  if (read(ends[0], &inner_for_middle, sizeof inner_for_middle) != sizeof inner_for_middle) {
    int status = 0;
    REQUIRE(waitpid(outer, &status, 0) == outer);
    REQUIRE(WEXITSTATUS(status) == 77);
    WARN("no PID namespace can be made here: not tested");
    close(ends[0]);
    return;
  }
  const pid_t middle = child_of(outer);
  const pid_t inner = child_of(middle);
  CHECK(pid_seen_by(getpid(), getpid()) == getpid());
  CHECK(pid_seen_by(outer, inner) == inner);
  CHECK(pid_seen_by(middle, middle) == 1);
  CHECK(pid_seen_by(middle, inner) == inner_for_middle);
  CHECK(pid_seen_by(inner, inner) == 1);
  CHECK(pid_seen_by(inner, middle) == 0);
  CHECK(pid_seen_by(middle, getpid()) == 0);
  CHECK(pid_seen_by(inner, 0) == 0);
  kill(middle, SIGKILL);  // and with it all in its namespace
  kill(outer, SIGKILL);
  CHECK(waitpid(outer, nullptr, 0) == outer);
  CHECK(pid_seen_by(inner, getpid()) == 0);
  close(ends[0]);
}

}  // namespace
}  // namespace sharedgpu
