// SPDX-License-Identifier: Apache-2.0
// The host memory that a process may still allocate, computed from the files of its memory cgroups and of the
// machine.
#include "arbiter/daemon/host_room.h"

#include <catch2/catch.hpp>
#include <cerrno>
#include <set>
#include <string>

#include "arbiter/daemon/cgroups.h"
#include "systems.h"

namespace sharedgpu::test {
namespace {

using host_memory::Version;
using Group = std::optional<MemoryGroup>;

constexpr pid_t kPid = 77;

std::string text(Bytes size) { return std::to_string(size.count) + "\n"; }

std::string meminfo(Bytes total, Bytes available, const std::string& more = {}) {
  return "MemTotal:       " + std::to_string(total.count >> 10) +
         " kB\nMemFree:              12 kB\nMemAvailable:   " + std::to_string(available.count >> 10) +
         " kB\n" + more;
}

// A machine with 64 GiB, of which 40 GiB are free, and a process whose /proc/PID/cgroup contains `cgroup`.
// Reads of the files in `fails` return the errno value given there.
struct Machine : RootedSystem {
  std::map<std::string, int> fails;

  explicit Machine(const std::string& cgroup) {
    write("/proc/77/cgroup", cgroup);
    write("/proc/meminfo", meminfo(gibibytes(64), gibibytes(40)));
    write("/proc/sys/vm/overcommit_memory", "0\n");
  }
  // Creates a memory cgroup: of version 1 if `path` begins with /memory, otherwise of version 2.
  void group(const std::string& path, const std::string& limit, Bytes used,
             const std::string& stat = "a 1\n") {
    const bool v1 = path.starts_with("/memory");
    write("/sys/fs/cgroup" + path + (v1 ? "/memory.limit_in_bytes" : "/memory.max"), limit);
    write("/sys/fs/cgroup" + path + (v1 ? "/memory.usage_in_bytes" : "/memory.current"), text(used));
    write("/sys/fs/cgroup" + path + "/memory.stat", stat);
  }
  Status read_file(const std::string& path, std::string& text) const override {
    const auto fault = fails.find(path);
    return fault == fails.end() ? RootedSystem::read_file(path, text) : Status::of_errno(fault->second, path);
  }
  std::optional<Bytes> room() const { return host_room(*this, kPid); }
};

constexpr Bytes kOfMachine = gibibytes(39);  // the machine's free memory minus the margin

TEST_CASE("The memory cgroup is that of the hierarchy with the memory controller") {
  CHECK(memory_group("0::/a/b\n") == Group({.version = Version::v2, .path = "/a/b"}));
  CHECK(memory_group("0::/\n") == Group({.version = Version::v2, .path = ""}));
  CHECK(memory_group("4:cpu,memory:/c:d\n0::/a\n") == Group({.version = Version::v1, .path = "/c:d"}));
  CHECK(memory_group("0::/a\n4:memory:/c\n") == Group({.version = Version::v1, .path = "/c"}));
  CHECK(memory_group("3:cpu:/x\n0::/a\n1:name=systemd:/y\n") ==
        Group({.version = Version::v2, .path = "/a"}));
  CHECK_FALSE(memory_group("3:cpu,memory_x:/x\n1:name=systemd:/y\nmemory\n"));
  CHECK_FALSE(memory_group(""));
}

TEST_CASE("Without a limit only the machine's memory bounds the room") {
  Machine machine("0::/slurm/job_7\n");
  machine.group("/slurm/job_7", "max\n", gibibytes(3));
  CHECK(machine.room() == kOfMachine);
  machine.write("/proc/77/cgroup", "3:cpu:/x\n");
  CHECK(machine.room() == kOfMachine);
  machine.write("/proc/77/cgroup", "0::/\n");
  CHECK(machine.room() == kOfMachine);
  machine.fails["/proc/77/cgroup"] = ENOENT;  // a Linux kernel without cgroups
  CHECK(machine.room() == kOfMachine);
}

TEST_CASE("The least room of a group and of those above it counts") {
  Machine machine("0::/slurm/job_7/step_0\n");
  machine.group("/slurm", "max\n", gibibytes(60));
  machine.group("/slurm/job_7", text(gibibytes(8)), gibibytes(5));
  machine.group("/slurm/job_7/step_0", text(gibibytes(16)), gibibytes(5));
  const Bytes room = gibibytes(3) - mebibytes(256);  // the margin is a 32nd of the 8 GiB
  CHECK(machine.room() == room);
  SECTION("memory.high too") {
    machine.write("/sys/fs/cgroup/slurm/memory.high", text(gibibytes(61)));
    CHECK(machine.room() == Bytes{});
  }
  SECTION("the topmost too, as in a container") {
    machine.group("", text(gibibytes(4)), gibibytes(3));
    CHECK(machine.room() == gibibytes(1) - mebibytes(128));
  }
  SECTION("without page cache") {
    machine.group("/slurm/job_7", text(gibibytes(8)), gibibytes(8),
                  "anon 1\ninactive_file 1073741824\nactive_file 2147483648\nslab 5\n");
    CHECK(machine.room() == room);
  }
  SECTION("and the machine's memory") {
    machine.write("/proc/meminfo", meminfo(gibibytes(64), gibibytes(2)));
    CHECK(machine.room() == gibibytes(1));
  }
  SECTION("beside v1, where v2 has another folder") {
    machine.write("/proc/77/cgroup", "0::/user/x\n");
    machine.group("/unified/user/x", text(gibibytes(2)), gibibytes(1));
    CHECK(machine.room() == gibibytes(1) - mebibytes(64));
  }
  SECTION("but of no more groups than a job has") {
    std::string path = "/slurm/job_7/step_0";
    for (int i = 0; i < 40; ++i) machine.group(path += "/x", text(mebibytes(1)), {});
    machine.write("/proc/77/cgroup", "0::/slurm/job_7/step_0\n");
    CHECK(machine.room() == room);
    machine.write("/proc/77/cgroup", "0::" + path + "\n");
    CHECK(machine.room() == Bytes{});
    for (int i = 0; i < 28; ++i) {  // removes the limits within the topmost 32 groups
      machine.group(path.substr(0, 19 + 2 * static_cast<std::size_t>(i + 1)), "max\n", {});
    }
    CHECK(machine.room() == room);
  }
}

TEST_CASE("Version 1 states no limit as a large number, and counts the page cache of groups below") {
  Machine machine("4:memory:/slurm/uid_1/job_7\n0::/\n");
  machine.group("/memory/slurm/uid_1", "9223372036854771712\n", gibibytes(60));
  machine.group("/memory/slurm/uid_1/job_7", "9223372036854771712\n", gibibytes(4));
  CHECK(machine.room() == kOfMachine);
  machine.group("/memory/slurm/uid_1/job_7", text(gibibytes(4)), gibibytes(4),
                "active_file 4294967296\ntotal_inactive_file 1073741824\ntotal_active_file 1073741824\n");
  CHECK(machine.room() == gibibytes(2) - mebibytes(128));
}

TEST_CASE("A kernel that does not overcommit limits the room by its own limit") {
  Machine machine("3:cpu:/x\n");
  machine.write("/proc/meminfo", meminfo(gibibytes(64), gibibytes(40),
                                         "CommitLimit:    33554432 kB\nCommitted_AS:   25165824 kB\n"));
  CHECK(machine.room() == kOfMachine);
  machine.write("/proc/sys/vm/overcommit_memory", "2\n");
  CHECK(machine.room() == gibibytes(7));
  machine.fails["/proc/sys/vm/overcommit_memory"] = ENOENT;
  CHECK(machine.room() == kOfMachine);
}

TEST_CASE("If a file cannot be read, the free host memory is unknown") {
  Machine machine("0::/slurm/job_7\n");
  machine.group("/slurm/job_7", text(gibibytes(8)), gibibytes(5));
  const std::string job = "/sys/fs/cgroup/slurm/job_7";
  for (const std::string& path :
       {std::string("/proc/77/cgroup"), std::string("/proc/meminfo"),
        std::string("/proc/sys/vm/overcommit_memory"), job + "/memory.max", job + "/memory.high",
        job + "/memory.current", job + "/memory.stat", std::string("/sys/fs/cgroup/slurm/memory.max")}) {
    for (const int error : {EMFILE, ENOMEM, EACCES}) {
      machine.fails = {{path, error}};
      CHECK_FALSE(machine.room());
    }
  }
  machine.fails = {{"/proc/meminfo", ENOENT}};
  CHECK_FALSE(machine.room());
  machine.fails = {{job + "/memory.current", ENODEV}};  // the cgroup has just been removed
  CHECK_FALSE(machine.room());
  machine.fails = {};
  CHECK(machine.room() == gibibytes(3) - mebibytes(256));
  machine.write("/proc/meminfo", "");
  CHECK_FALSE(machine.room());
}

TEST_CASE("The room of a process in an invisible cgroup is unknown") {
  CHECK_FALSE(Machine("0::/slurm/job_8\n").room());
  CHECK_FALSE(Machine("0::/../slurm\n").room());
  CHECK_FALSE(Machine("4:memory:/slurm\n").room());
}

// ---- limits and charges ----

TEST_CASE("The most evicted memory is the least limit of the groups, less its margin") {
  Machine machine("0::/slurm/job_7/step_0/user/task_0\n");
  CHECK(host_most(machine, kPid) == std::nullopt);  // the group is not visible
  machine.group("/slurm", "max\n", gibibytes(60));
  machine.group("/slurm/job_7", text(gibibytes(16)), gibibytes(5));
  machine.group("/slurm/job_7/step_0", text(gibibytes(8)), gibibytes(5));
  machine.group("/slurm/job_7/step_0/user/task_0", "max\n", gibibytes(5));
  const HostMost most{.of_step = gibibytes(8) - mebibytes(256), .of_job = gibibytes(16) - mebibytes(512)};
  CHECK(host_most(machine, kPid) == most);
  SECTION("whatever is used") { machine.fails["/sys/fs/cgroup/slurm/job_7/memory.current"] = EIO; }
  SECTION("and memory.high") {
    machine.write("/sys/fs/cgroup/slurm/job_7/memory.high", text(gibibytes(17)));
    machine.write("/sys/fs/cgroup/slurm/job_7/step_0/memory.high", text(gibibytes(9)));
  }
  CHECK(host_most(machine, kPid) == most);
  machine.fails["/sys/fs/cgroup/slurm/job_7/memory.max"] = EMFILE;
  CHECK(host_most(machine, kPid) == std::nullopt);
}

TEST_CASE("Without limits there is no maximum") {
  Machine machine("4:memory:/slurm/uid_1/job_7\n");
  machine.group("/memory/slurm/uid_1/job_7", "9223372036854771712\n", gibibytes(5));
  CHECK(host_most(machine, kPid) == HostMost{});
  machine.write("/proc/77/cgroup", "3:cpu:/x\n");
  CHECK(host_most(machine, kPid) == HostMost{});
  machine.fails["/proc/77/cgroup"] = ENOENT;
  CHECK(host_most(machine, kPid) == HostMost{});
  machine.fails["/proc/77/cgroup"] = EMFILE;
  CHECK(host_most(machine, kPid) == std::nullopt);
}

TEST_CASE("The charge is that of the process's own group, beside the memory of the process") {
  const bool v1 = GENERATE(true, false);
  Machine machine(v1 ? "4:memory:/slurm/job_7\n" : "0::/slurm/job_7\n");
  const std::string folder = v1 ? "/memory/slurm/job_7" : "/slurm/job_7";
  machine.group(folder, "max\n", gibibytes(5), "inactive_file 1073741824\n");
  machine.write("/proc/77/status",
                "Name:\tx\nVmRSS:\t    2048 kB\nVmSwap:\t     1024 kB\nHugetlbPages:\t 1 kB\n");
  const auto charge = host_charge(machine, kPid);
  REQUIRE(charge);
  CHECK(charge->group == "/sys/fs/cgroup" + folder);
  CHECK(charge->of_group == gibibytes(5));
  CHECK(charge->of_process == kibibytes(3073));
  SECTION("a process that ends") { machine.write("/proc/77/status", "Name:\tx\nState:\tZ\n"); }
  SECTION("no such group") { machine.write("/proc/77/cgroup", "0::/elsewhere\n"); }
  SECTION("no group") { machine.write("/proc/77/cgroup", "3:cpu:/x\n"); }
  SECTION("unreadable") { machine.fails["/proc/77/status"] = EMFILE; }
  CHECK_FALSE(host_charge(machine, kPid));
}

}  // namespace
}  // namespace sharedgpu::test
