// SPDX-License-Identifier: Apache-2.0
// Reads arbitrary texts as the files about memory cgroups and the machine's memory. The resulting budget of a
// process must never exceed the limit of its cgroup.
#include "interposer/memory/host_budget.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "input.h"
#include "protocol/split.h"

namespace {

// The files of cgroup versions 2 and 1, for the process's cgroup and for its parent.
constexpr const char* kFiles[] = {"proc/meminfo",
                                  "proc/self/cgroup",
                                  "sys/fs/cgroup/a/b/memory.max",
                                  "sys/fs/cgroup/a/b/memory.current",
                                  "sys/fs/cgroup/a/b/memory.stat",
                                  "sys/fs/cgroup/a/memory.max",
                                  "sys/fs/cgroup/a/memory.current",
                                  "sys/fs/cgroup/memory/a/memory.limit_in_bytes",
                                  "sys/fs/cgroup/memory/a/memory.usage_in_bytes",
                                  "sys/fs/cgroup/memory/a/memory.stat"};

std::string make_root() {
  std::string root = "/dev/shm/sgpu-fuzz." + std::to_string(getpid());
  for (const char* folder : {"/proc/self", "/sys/fs/cgroup/a/b", "/sys/fs/cgroup/memory/a"})
    std::filesystem::create_directories(root + folder);
  std::atexit([] { std::filesystem::remove_all("/dev/shm/sgpu-fuzz." + std::to_string(getpid())); });
  return root;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace sharedgpu;
  static const std::string root = make_root();
  const auto parts = split(fuzz::text_of(data, size), '\0');
  for (std::size_t i = 0; i < std::size(kFiles); ++i)
    std::ofstream(root + "/" + kFiles[i], std::ios::trunc)
        << (i < parts.size() ? parts[i] : std::string_view{});
  const CgroupBudget budget(root);
  const auto limit = budget.limit();
  const auto of_job = budget.job_limit();
  if (limit) fuzz::require(budget.room() <= *limit, "more room than the limit");
  if (limit && of_job) fuzz::require(*limit <= *of_job, "a process may have more than its job");
  budget.tight(mebibytes(1));
  budget.used_up();
  return 0;
}
