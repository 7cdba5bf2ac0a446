// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_budget.h"

#include <catch2/catch.hpp>

#include "tests/unit/memory/support/root.h"

using namespace sharedgpu;
using sharedgpu::test::Root;

namespace {

std::string text(Bytes size) { return std::to_string(size.count) + "\n"; }

}  // namespace

TEST_CASE("without cgroups only the machine's memory bounds the room", "[budget]") {
  const Root root;
  const CgroupBudget budget(root.path());
  CHECK(budget.room() == gibibytes(32) - gibibytes(1));
  CHECK(budget.limit() == std::nullopt);
  CHECK_FALSE(budget.tight({}));
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
  CHECK_FALSE(budget.tight({}));

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
  }
  SECTION("memory.high is a limit") {
    root.write(slurm + "/job_7/memory.high", text(gibibytes(6)));
    CHECK(budget.limit() == gibibytes(6) - mebibytes(192));
  }
  SECTION("a lifted limit is seen") {
    root.write(slurm + "/job_7/memory.max", "max\n");
    CHECK(budget.limit() == gibibytes(16) - mebibytes(512));
  }
}

TEST_CASE("version 1 has its own names", "[budget]") {
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

TEST_CASE("in a container the host's path is not there, the upper end is", "[budget]") {
  const Root root;
  root.write("/proc/self/cgroup", "0::/not/seen/here\n");
  root.write("/sys/fs/cgroup/memory.max", text(gibibytes(2)));
  root.write("/sys/fs/cgroup/memory.current", text(gibibytes(1)));
  CHECK(CgroupBudget(root.path()).room() == gibibytes(1) - mebibytes(64));
}

TEST_CASE("files that make no sense bound nothing", "[budget]") {
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
