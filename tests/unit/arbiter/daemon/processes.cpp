// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/processes.h"

#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <string>

#include "systems.h"

namespace sharedgpu {
namespace {

using test::FaultySystem;
using test::kHostSystem;
using test::RootedSystem;
using Step = std::optional<StepName>;

Step step_of_process(const System& system, std::string_view cgroup) {
  Step step;
  REQUIRE(sharedgpu::step_of_process(system, cgroup, step).ok());
  return step;
}

TEST_CASE("A step counts only if root owns all folders down to the job's folder") {
  RootedSystem root;
  const std::string v2 = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_3/user/x";
  const std::string v1 = "/sys/fs/cgroup/memory/slurm/uid_1000/job_8/step_4/x";
  const std::string text_v2 = "0::/system.slice/slurmstepd.scope/job_7/step_3/user/task_0\n";
  const std::string text_v1 = "4:memory:/slurm/uid_1000/job_8/step_4/task_0\n";
  CHECK_FALSE(step_of_process(root, text_v2));  // the step's folder does not exist
  root.write(v2, "");
  root.write(v1, "");
  CHECK(step_of_process(root, text_v2) == Step(StepName{7, 3}));
  CHECK(step_of_process(root, text_v1) == Step(StepName{8, 4}));
  // Under v1, Slurm gives the step's folder to the user.
  root.owners = {{"/sys/fs/cgroup/memory/slurm/uid_1000/job_8/step_4", 1000},
                 {"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_3/user", 1000}};
  CHECK(step_of_process(root, text_v1) == Step(StepName{8, 4}));
  CHECK(step_of_process(root, text_v2) == Step(StepName{7, 3}));
  for (const std::string folder :
       {"/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7", "/sys/fs/cgroup/system.slice/slurmstepd.scope",
        "/sys/fs/cgroup/system.slice", "/sys/fs/cgroup"}) {
    root.owners = {{folder, 1000}};
    CHECK_FALSE(step_of_process(root, text_v2));
  }
  // If the user owns a folder of the path in one hierarchy, the arbiter uses the path in the other hierarchy.
  root.write("/sys/fs/cgroup/systemd/lxc/slurm/uid_0/job_9/step_0/x", "");
  root.owners = {{"/sys/fs/cgroup/systemd/lxc", 1000}};
  CHECK(step_of_process(root, "9:name=systemd:/lxc/slurm/uid_0/job_9/step_0\n" + text_v1) ==
        Step(StepName{8, 4}));
  root.owners = {};
  CHECK(step_of_process(root, "9:name=systemd:/lxc/slurm/uid_0/job_9/step_0\n" + text_v1) ==
        Step(StepName{9, 0}));
}

TEST_CASE("A step is found if v2 is mounted beside v1") {
  const RootedSystem root;
  root.write("/sys/fs/cgroup/unified/system.slice/slurmstepd.scope/job_7/step_3/x", "");
  CHECK(step_of_process(root, "0::/system.slice/slurmstepd.scope/job_7/step_3/user\n") ==
        Step(StepName{7, 3}));
}

TEST_CASE("A shortage during the search for a step is an error, and not the answer that there is no step") {
  const std::string base = "/system.slice/slurmstepd.scope/sAB12CD34EF56G";
  struct Short : RootedSystem {
    std::string lacks;
    Status read_file(const std::string& path, std::string& text) const override {
      return path == lacks ? Status::of_errno(EMFILE, path) : RootedSystem::read_file(path, text);
    }
    Status owner_of(const std::string& path, uid_t& owner) const override {
      return path == lacks ? Status::of_errno(ENOMEM, path) : RootedSystem::owner_of(path, owner);
    }
  } root;
  root.write("/sys/fs/cgroup" + base + "/step_0/slurm/cgroup.procs", "60\n");
  root.write("/proc/60/status", "Name:\tx\nUid:\t0\t0\t0\t0\n");
  root.write("/proc/60/cmdline", "slurmstepd: [12.0]");
  Step step;
  for (const std::string& path :
       {"/sys/fs/cgroup" + base + "/step_0/slurm/cgroup.procs", std::string("/proc/60/status"),
        std::string("/proc/60/cmdline"), "/sys/fs/cgroup" + base}) {
    root.lacks = path;
    const Status read = sharedgpu::step_of_process(root, "0::" + base + "/step_0/user\n", step);
    CHECK(is_shortage(read.code()));
    CHECK_FALSE(step);
  }
  root.lacks.clear();
  CHECK(step_of_process(root, "0::" + base + "/step_0/user\n") == Step(StepName{12, 0}));
}

TEST_CASE("Steps whose job's cgroup is named by SLUID") {
  const std::string folder = "/system.slice/n1_slurmstepd.scope/sAB12CD34EF56G/step_";
  const RootedSystem root;
  const auto step_of = [&](pid_t pid) {
    std::string cgroup;
    REQUIRE(root.read_file("/proc/" + std::to_string(pid) + "/cgroup", cgroup).ok());
    return step_of_process(root, cgroup);
  };
  root.write("/proc/70/cgroup", "0::" + folder + "batch/user/task_0\n");
  CHECK_FALSE(step_of(70));
  // The slurmstepd of the step, and a process of another user in the same cgroup.
  root.write("/sys/fs/cgroup" + folder + "batch/slurm/cgroup.procs", "60\n61\n");
  root.write("/proc/60/status", "Name:\tx\nUid:\t1000\t1000\t1000\t1000\n");
  root.write("/proc/60/cmdline", "slurmstepd: [13.batch]");
  CHECK_FALSE(step_of(70));
  root.write("/proc/61/status", "Name:\tslurmstepd\nUid:\t0\t0\t0\t0\n");
  root.write("/proc/61/cmdline", std::string("slurmstepd: [12.batch]\0\0", 24));
  CHECK(step_of(70) == Step(StepName{12, 0xfffffffb}));
  // Paths that a user can create are ignored, and so are paths outside of Slurm's part of the tree.
  for (const std::string& other :
       {"/user.slice" + folder + "batch/user", std::string("/system.slice/n1_slurmstepd.scope/system"),
        std::string("/system.slice/n1_slurmstepd.scope/other/sAB12CD34EF56G/step_batch/user")}) {
    root.write("/proc/71/cgroup", "0::" + other + "\n");
    root.write("/sys/fs/cgroup" + other + "/slurm/cgroup.procs", "61\n");
    CHECK_FALSE(step_of(71));
  }
  root.write("/proc/61/cmdline", "slurmstepd: [sAB12CD34EF56G.batch]");
  CHECK_FALSE(step_of(70));
}

// Returns the pid of the child of `parent`.
pid_t child_of(pid_t parent) {
  const std::string number = std::to_string(parent);
  pid_t child = 0;
  std::ifstream("/proc/" + number + "/task/" + number + "/children") >> child;
  return child;
}

pid_t seen_by(pid_t viewer, pid_t pid) {
  return pid_seen_by(pid_names_of(kHostSystem, viewer), pid_names_of(kHostSystem, pid));
}

TEST_CASE("Pids are those of the viewer's own namespace") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  // Three processes: `outer` is in the PID namespace of the test. Its child `middle` is the first process of
  // a PID namespace inside the namespace of the test, and its child `inner` is the first process of a PID
  // namespace inside the namespace of `middle`.
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
  CHECK(seen_by(getpid(), getpid()) == getpid());
  CHECK(seen_by(outer, inner) == inner);
  CHECK(seen_by(middle, middle) == 1);
  CHECK(seen_by(middle, inner) == inner_for_middle);
  CHECK(seen_by(inner, inner) == 1);
  CHECK(seen_by(inner, middle) == 0);
  CHECK(seen_by(middle, getpid()) == 0);
  CHECK(seen_by(inner, 0) == 0);
  kill(middle, SIGKILL);  // the signal ends all processes in its namespace
  kill(outer, SIGKILL);
  CHECK(waitpid(outer, nullptr, 0) == outer);
  CHECK(seen_by(inner, getpid()) == 0);
  close(ends[0]);
}

// A child that sleeps, until the end of the scope.
struct SleepingChild {
  pid_t pid = fork();
  SleepingChild() {
    if (pid == 0)
      for (;;) pause();
  }
  ~SleepingChild() {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  SleepingChild(const SleepingChild&) = delete;
  SleepingChild& operator=(const SleepingChild&) = delete;
};

TEST_CASE("Processes that are stopped by a signal") {
  SleepingChild child;
  CHECK_FALSE(is_stopped(kHostSystem, child.pid));
  kill(child.pid, SIGSTOP);
  waitpid(child.pid, nullptr, WUNTRACED);
  CHECK(is_stopped(kHostSystem, child.pid));
  kill(child.pid, SIGCONT);
  waitpid(child.pid, nullptr, WCONTINUED);
  CHECK_FALSE(is_stopped(kHostSystem, child.pid));
  CHECK_FALSE(is_stopped(kHostSystem, 0x7ffffffe));
}

TEST_CASE("Processes that are stopped in part, or frozen with their cgroup") {
  const RootedSystem root;
  auto threads = [&](const std::string& states) {
    root.write("/proc/7/stat", std::string("7 (a) T (b) ") + states[0] + " 1 7");
    for (std::size_t i = 0; i < states.size(); ++i)
      root.write("/proc/7/task/" + std::to_string(7 + i) + "/stat",
                 std::string("7 (a) ") + states[i] + " 1 7");
  };
  threads("TTt");
  CHECK(is_stopped(root, 7));
  threads("tSt");
  CHECK_FALSE(is_stopped(root, 7));
  threads("ZTT");
  CHECK(is_stopped(root, 7));
  threads("ZZZ");
  CHECK_FALSE(is_stopped(root, 7));
  threads("SSS");
  root.write("/proc/7/cgroup", "6:freezer:/slurm/job_1/step_0\n0::/a/b\n");
  CHECK_FALSE(is_stopped(root, 7));
  root.write("/sys/fs/cgroup/a/b/cgroup.events", "populated 1\nfrozen 0\n");
  root.write("/sys/fs/cgroup/freezer/slurm/job_1/step_0/freezer.state", "FREEZING\n");
  CHECK_FALSE(is_stopped(root, 7));
  SECTION("v2") { root.write("/sys/fs/cgroup/a/b/cgroup.events", "populated 1\nfrozen 1\n"); }
  SECTION("v1") { root.write("/sys/fs/cgroup/freezer/slurm/job_1/step_0/freezer.state", "FROZEN\n"); }
  CHECK(is_stopped(root, 7));
}

TEST_CASE("A frozen folder of the user's own is the user's doing, unless root has frozen one above") {
  RootedSystem root;
  const std::string step = "/sys/fs/cgroup/freezer/slurm/job_1/step_0";
  root.write("/proc/7/stat", "7 (a) S 1 7");
  root.write("/proc/7/cgroup", "6:freezer:/slurm/job_1/step_0/mine\n");
  root.write(step + "/mine/freezer.state", "FROZEN\n");
  root.owners[step + "/mine/freezer.state"] = 1000;
  root.write(step + "/freezer.state", "THAWED\n");
  CHECK(stopped_state(root, 7) == Stopped::by_user);
  root.write(step + "/freezer.state", "FROZEN\n");
  CHECK(stopped_state(root, 7) == Stopped::by_root);
}

TEST_CASE("The poll of a frozen process costs the same however deep its user nests cgroups") {
  struct Counting : RootedSystem {
    mutable unsigned looks = 0;
    Status read_file(const std::string& path, std::string& text) const override {
      ++looks;
      return RootedSystem::read_file(path, text);
    }
    Status owner_of(const std::string& path, uid_t& owner) const override {
      ++looks;
      return RootedSystem::owner_of(path, owner);
    }
  } root;
  std::string folder = "/job_1/step_0";
  for (const std::string& each : {std::string("/job_1"), folder})
    root.write("/sys/fs/cgroup" + each + "/cgroup.events", "frozen 0\n");
  for (int i = 0; i < 200; ++i) {
    folder += "/a";
    const std::string file = "/sys/fs/cgroup" + folder + "/cgroup.events";
    root.write(file, "frozen 1\n");
    root.owners[file] = 1000;
  }
  root.write("/proc/7/stat", "7 (a) S 1 7");
  root.write("/proc/7/cgroup", "0::" + folder + "\n");
  CHECK(stopped_state(root, 7) == Stopped::by_user);
  CHECK(root.looks < 20);
}

TEST_CASE("If a file of a process cannot be read, the answer is no") {
  RootedSystem root;
  root.write("/proc/7/stat", "7 (a) T 1 7");
  CHECK_FALSE(is_stopped(root, 7));  // no thread is found: all threads of process 7 have ended
  root.write("/proc/7/task/7/stat", "7 (a) T 1 7");
  root.write("/proc/7/task/8/other", "");  // thread 8 has ended: its folder has no stat
  CHECK_FALSE(is_stopped(root, 7));
  CHECK(start_time_of(root, 7) == 0);
  CHECK(program_of(root, 7) == 0);
  CHECK(start_time_of(root, 8) == 0);
  CHECK(pid_seen_by(pid_names_of(root, 8), pid_names_of(root, 7)) == 0);
  CHECK_FALSE(step_of_process(root, "0::/system.slice/slurmstepd.scope/sAB12CD34EF56G/step_0/user"));
  CHECK_FALSE(runs_as("", 0));
}

TEST_CASE("A process that a shortage hides counts as alive, with the same program") {
  FaultySystem system;
  const std::uint64_t program = program_of(kHostSystem, getpid());
  for (const int error : {EMFILE, ENFILE, ENOMEM}) {
    system.reading = [error](const std::string&) { return error; };
    CHECK_FALSE(known_start_time_of(system, getpid()));
    CHECK(may_run(system, getpid(), program));
  }
  system.reading = [](const std::string&) { return ENOENT; };
  CHECK(known_start_time_of(system, getpid()) == 0u);
  CHECK_FALSE(may_run(system, getpid(), program));
  system.reading = [](const std::string&) { return 0; };
  CHECK(known_start_time_of(system, getpid()) == start_time_of(kHostSystem, getpid()));
  CHECK(may_run(system, getpid(), program));
  CHECK_FALSE(may_run(system, getpid(), program + 1));
}

TEST_CASE("A process is opened only if it is still the same process") {
  const auto pid = static_cast<std::uint32_t>(getpid());
  const std::uint64_t started = start_time_of(kHostSystem, getpid());
  CHECK(open_process(kHostSystem, {.pid = pid, .started = started}));
  CHECK_FALSE(open_process(kHostSystem, {.pid = pid, .started = started + 1}));
  FaultySystem system;
  system.reading = [](const std::string&) { return EMFILE; };
  CHECK_FALSE(open_process(system, {.pid = pid, .started = started}));
  system.reading = [](const std::string&) { return 0; };
  CHECK(open_process(system, {.pid = pid, .started = started}));
  system.processes = EMFILE;
  CHECK_FALSE(open_process(system, {.pid = pid, .started = started}));
}

TEST_CASE("A process is stopped if all of its threads are stopped, whichever is read first") {
  const RootedSystem root;
  root.write("/proc/7/stat", "7 (a) T 1 7");
  for (const std::string states : {"TSTTTTTT", "TTTTTTTS", "TTTSTTTT"}) {
    for (std::size_t i = 0; i < states.size(); ++i)
      root.write("/proc/7/task/" + std::to_string(7 + i) + "/stat",
                 std::string("7 (a) ") + states[i] + " 1 7");
    CHECK_FALSE(is_stopped(root, 7));
  }
}

TEST_CASE("A frozen cgroup is found where v2 is mounted beside v1, and a freezer of v1 only under its name") {
  const RootedSystem root;
  root.write("/proc/7/stat", "7 (a) S 1 7");
  root.write("/proc/7/cgroup", "6:memory:/m\n5:freezer:/f\n0::/a:b\n");
  root.write("/sys/fs/cgroup/freezer/m/freezer.state", "FROZEN\n");
  CHECK_FALSE(is_stopped(root, 7));
  root.write("/sys/fs/cgroup/unified/a:b/cgroup.events", "frozen 1\n");
  CHECK(is_stopped(root, 7));
}

TEST_CASE("A step is named by SLUID in the line of v2, wherever this line is") {
  const std::string folder = "/system.slice/n1_slurmstepd.scope/sAB12CD34EF56G/step_";
  const RootedSystem root;
  root.write("/sys/fs/cgroup" + folder + "0/slurm/cgroup.procs", "60\n");
  root.write("/proc/60/status", "Name:\tx\nUid:\t0\t0\t0\t0\n");
  const auto step = [&](const std::string& title) {
    root.write("/proc/60/cmdline", title);
    return step_of_process(root, "5:freezer:/f\n0::" + folder + "0/user\n");
  };
  CHECK(step("slurmstepd: [12.0]") == Step(StepName{12, 0}));
  CHECK_FALSE(step("slurmstepd: [0.0]"));
  CHECK_FALSE(step("elsewhere: [12.0]"));
  CHECK_FALSE(step_of_process(root, "5:freezer:" + folder + "0/user\n"));
}

}  // namespace
}  // namespace sharedgpu
