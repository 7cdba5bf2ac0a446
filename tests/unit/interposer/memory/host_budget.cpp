// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_budget.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <csignal>
#include <vector>

#include "tests/unit/interposer/memory/support/root.h"

using namespace sharedgpu;
using sharedgpu::test::Root;

namespace {

std::string text(Bytes size) { return std::to_string(size.count) + "\n"; }

rlimit descriptors() {
  rlimit now = {};
  getrlimit(RLIMIT_NOFILE, &now);
  return now;
}

}  // namespace

TEST_CASE("without cgroups only the machine's memory bounds the room", "[budget]") {
  const Root root;
  const CgroupBudget budget(root.path());
  CHECK(budget.room() == gibibytes(32) - gibibytes(1));
  CHECK(budget.limit() == std::nullopt);
  CHECK_FALSE(budget.tight({}));
}

// While an object of this class exists, open() of a pipe that nobody writes to fails with EINTR.
class Interruptions {
 public:
  Interruptions() {
    struct sigaction ignores = {};
    ignores.sa_handler = [](int) {};
    sigaction(SIGALRM, &ignores, &before_);
    const itimerval often = {.it_interval = {0, 2000}, .it_value = {0, 2000}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Interruptions() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &before_, nullptr);
  }
  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;

 private:
  struct sigaction before_ = {};
};

TEST_CASE("a limit that could not be read at first bounds the room once it can be", "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/slurm/job_7\n");
  const std::string job = "/sys/fs/cgroup/slurm/job_7";
  root.write(job + "/memory.current", text(gibibytes(5)));
  const std::string limit = root.path() + job + "/memory.max";
  REQUIRE(mkfifo(limit.c_str(), 0600) == 0);
  const CgroupBudget budget(root.path());
  {
    const Interruptions often;
    CHECK(budget.room() == Bytes{});
  }
  REQUIRE(unlink(limit.c_str()) == 0);
  root.write(job + "/memory.max", text(gibibytes(8)));
  CHECK(budget.room() == gibibytes(3) - mebibytes(256));
}

TEST_CASE("the limit for an amount leaves it beside the margin, and hardly more", "[budget]") {
  for (const std::uint64_t size :
       {0ull, 1ull, 1ull << 20, 991ull << 20, 992ull << 20, 993ull << 20, 31ull << 30, (31ull << 30) - 1,
        (31ull << 30) + 1, 100ull << 30, 77'777'777'777ull}) {
    const Bytes limit = host_memory::limit_for(Bytes{size});
    CHECK(host_memory::room(limit, {}) >= Bytes{size});
    CHECK(host_memory::room(limit, {}) <= Bytes{size + 1});
  }
  for (const Bytes limit : {mebibytes(64), gibibytes(1), gibibytes(26), gibibytes(32), gibibytes(300)})
    CHECK(host_memory::limit_for(host_memory::room(limit, {})) == limit);
}

TEST_CASE("memory that no cgroup is charged for counts as if it were charged", "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/slurm/job_7\n");
  const std::string job = "/sys/fs/cgroup/slurm/job_7";
  root.write(job + "/memory.max", text(gibibytes(8)));
  root.write(job + "/memory.current", text(gibibytes(5)));
  CgroupBudget budget(root.path());
  budget.take_uncharged(gibibytes(1));
  budget.take_uncharged(gibibytes(1));
  CHECK(budget.used() == gibibytes(7));
  CHECK(budget.room() == gibibytes(1) - mebibytes(256));
  CHECK(budget.limit() == gibibytes(8) - mebibytes(256));
  CHECK_FALSE(budget.used_up());
  CHECK(budget.tight(gibibytes(1) - mebibytes(100)));
  budget.take_uncharged(gibibytes(1));
  CHECK(budget.room() == Bytes{});
  CHECK(budget.used_up());
  budget.give_uncharged(gibibytes(3));
  CHECK(budget.room() == gibibytes(3) - mebibytes(256));
  CHECK(budget.used() == gibibytes(5));
}

TEST_CASE("the recent room is read again after a while, and follows uncharged memory at once", "[budget]") {
  using namespace std::chrono_literals;
  const Root root;
  root.write("/proc/self/cgroup", "0::/slurm/job_7\n");
  const std::string job = "/sys/fs/cgroup/slurm/job_7";
  root.write(job + "/memory.max", text(gibibytes(8)));
  root.write(job + "/memory.current", text(gibibytes(5)));
  CgroupBudget budget(root.path());
  const Bytes before = gibibytes(3) - mebibytes(256);
  CHECK(budget.recent_room(10s) == before);
  root.write(job + "/memory.current", text(gibibytes(6)));
  CHECK(budget.recent_room(10s + 99ms) == before);
  budget.take_uncharged(gibibytes(1));
  CHECK(budget.recent_room(10s + 99ms) == before - gibibytes(1));
  CHECK(budget.recent_room(10s + 100ms) == before - gibibytes(2));
  budget.give_uncharged(gibibytes(1));
  CHECK(budget.recent_room(10s + 199ms) == before - gibibytes(2));
  CHECK(budget.recent_room(10s + 200ms) == before - gibibytes(1));
  budget.take_uncharged(gibibytes(4));
  CHECK(budget.recent_room(10s + 201ms) == Bytes{});
}

TEST_CASE("the smallest room of a version 2 group and its ancestors counts", "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  const std::string slurm = "/sys/fs/cgroup/slurm";
  root.write(slurm + "/memory.max", "max\n");
  root.write(slurm + "/memory.current", text(gibibytes(60)));
  root.write(slurm + "/job_7/memory.max", text(gibibytes(8)));
  root.write(slurm + "/job_7/memory.current", text(gibibytes(5)));
  root.write(slurm + "/job_7/step_0/memory.max", text(gibibytes(16)));
  root.write(slurm + "/job_7/step_0/memory.current", text(gibibytes(5)));
  const CgroupBudget budget(root.path());
  CHECK(budget.room() == gibibytes(3) - mebibytes(256));
  CHECK(budget.limit() == gibibytes(8) - mebibytes(256));
  CHECK(budget.job_limit() == budget.limit());
  CHECK_FALSE(budget.tight({}));
  CHECK(budget.used() == gibibytes(5));

  SECTION("what the job takes is seen at once") {
    root.write(slurm + "/job_7/memory.current", text(gibibytes(8) - mebibytes(300)));
    CHECK(budget.room() == mebibytes(44));
    CHECK(budget.tight({}));
    root.write(slurm + "/job_7/memory.current", text(gibibytes(9)));
    CHECK(budget.room() == Bytes{});
  }
  SECTION("the job uses the margin up when it takes more than a quarter of it") {
    root.write(slurm + "/job_7/memory.current", text(gibibytes(8) - mebibytes(192)));
    CHECK(budget.room() == Bytes{});
    CHECK_FALSE(budget.used_up());
    root.write(slurm + "/job_7/memory.current", text(gibibytes(8) - mebibytes(191)));
    CHECK(budget.used_up());
  }
  SECTION("page cache does not count") {
    root.write(slurm + "/job_7/memory.stat",
               "anon 1\nfile 2\ninactive_file 1073741824\nactive_file 1073741824\nslab 5\n");
    CHECK(budget.room() == gibibytes(5) - mebibytes(256));
    CHECK(budget.used() == gibibytes(3));
  }
  SECTION("memory.high is a limit") {
    root.write(slurm + "/job_7/memory.high", text(gibibytes(6)));
    CHECK(budget.limit() == gibibytes(6) - mebibytes(192));
  }
  SECTION("a lifted limit is seen") {
    root.write(slurm + "/job_7/memory.max", "max\n");
    CHECK(budget.limit() == gibibytes(16) - mebibytes(512));
    root.write(slurm + "/job_7/step_0/memory.max", "max\n");
    CHECK(budget.used() == Bytes{});
  }
  SECTION("what bounds the step alone does not bound the job") {
    root.write(slurm + "/job_7/step_0/memory.max", text(gibibytes(4)));
    CHECK(budget.limit() == gibibytes(4) - mebibytes(128));
    CHECK(budget.job_limit() == gibibytes(8) - mebibytes(256));
  }
  SECTION("without descriptors the limits stay, and nothing may be taken") {
    const rlimit before = descriptors();
    const rlimit none = {.rlim_cur = 0, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
    const std::optional<Bytes> limit = budget.limit();
    const std::optional<Bytes> of_job = budget.job_limit();
    const Bytes room = budget.room();
    const bool tight = budget.tight({});
    setrlimit(RLIMIT_NOFILE, &before);
    CHECK(limit == gibibytes(8) - mebibytes(256));
    CHECK(of_job == limit);
    CHECK(room == Bytes{});
    CHECK_FALSE(tight);
    CHECK(budget.room() == gibibytes(3) - mebibytes(256));
  }
}

TEST_CASE("a limit that could never be read is reported once", "[budget]") {
  static std::vector<std::string> told;
  told.clear();
  const auto tell = [](const char* path, int error) { told.push_back(path + std::to_string(error)); };
  const Root root;
  const std::string group = "/sys/fs/cgroup/job";
  SECTION("one file") {
    root.write("/proc/self/cgroup", "0::/job\n");
    root.write(group + "/memory.current", text(gibibytes(1)));
    std::filesystem::create_symlink("memory.max", root.path() + group + "/memory.max");  // a loop
    const CgroupBudget budget(root.path(), tell);
    CHECK(budget.limit() == std::nullopt);
    CHECK(budget.limit() == std::nullopt);
    CHECK(told == std::vector{root.path() + group + "/memory.max" + std::to_string(ELOOP)});
  }
  SECTION("where the process is: it is looked for again, and nothing may be taken before") {
    std::filesystem::create_directories(root.path() + "/proc/self");
    std::filesystem::create_symlink("cgroup", root.path() + "/proc/self/cgroup");
    const CgroupBudget budget(root.path(), tell);
    CHECK(budget.room() == Bytes{});
    CHECK(told.size() == 1);
    std::filesystem::remove(root.path() + "/proc/self/cgroup");
    root.write("/proc/self/cgroup", "0::/job\n");
    root.write(group + "/memory.current", text(gibibytes(1)));
    root.write(group + "/memory.max", text(gibibytes(2)));
    CHECK(budget.room() == gibibytes(1) - mebibytes(64));
  }
}

TEST_CASE("the files of version 1 have names of their own", "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/slurm/job_7\n1:name=systemd:/x\n");
  const std::string memory = "/sys/fs/cgroup/memory";
  root.write(memory + "/memory.limit_in_bytes", "9223372036854771712\n");
  root.write(memory + "/memory.usage_in_bytes", text(gibibytes(60)));
  root.write(memory + "/slurm/job_7/memory.limit_in_bytes", text(gibibytes(4)));
  root.write(memory + "/slurm/job_7/memory.usage_in_bytes", text(gibibytes(3)));
  root.write(memory + "/slurm/job_7/memory.stat",
             "inactive_file 7\ntotal_inactive_file 536870912\ntotal_active_file 0\n");
  const CgroupBudget budget(root.path());
  CHECK(budget.room() == gibibytes(1) + mebibytes(512) - mebibytes(128));
  CHECK(budget.limit() == gibibytes(4) - mebibytes(128));
}

TEST_CASE("if the path of the cgroup is missing, as in a container, the limit of the topmost folder counts",
          "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/not/seen/here\n");
  root.write("/sys/fs/cgroup/memory.max", text(gibibytes(2)));
  root.write("/sys/fs/cgroup/memory.current", text(gibibytes(1)));
  CHECK(CgroupBudget(root.path()).room() == gibibytes(1) - mebibytes(64));
}

TEST_CASE("malformed files limit nothing", "[budget]") {
  const Root root;
  root.write("/proc/meminfo", "nothing\n");
  root.write("/proc/self/cgroup", "what\n::\n0::\n0:::\n");
  const CgroupBudget budget(root.path());
  CHECK(budget.room() == Bytes{~0ull});
  CHECK(budget.limit() == std::nullopt);
}

TEST_CASE("this process has a budget", "[budget]") {
  const CgroupBudget budget;
  CHECK(budget.room() < gibibytes(1 << 20));
}
