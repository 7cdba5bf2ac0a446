// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/host_room.h"

#include <algorithm>
#include <cerrno>

#include "arbiter/daemon/cgroups.h"

namespace sharedgpu {
namespace {

using host_memory::Version;

// The maximum number of groups that are read, from the root down. Users may nest thousands of cgroups, but
// the limits of jobs are in the upper groups.
constexpr std::size_t kMostGroups = 32;

// A missing file sets no limit.
bool is_absent(const Status& read) { return read.code() == ENOENT || read.code() == ENODEV; }

std::optional<Bytes> limit_of(const HostTexts::Group& group) {
  std::optional<Bytes> least;
  for (const std::string& limit : group.limits)
    least = host_memory::lower(least, host_memory::limit_in(limit));
  return least;
}

bool is_visible(const System& system, const std::string& group) {
  uid_t owner = 0;
  const std::string folder = system.group_folder(group);
  return !folder.empty() && group.find("/..") == std::string::npos && system.owner_of(folder, owner).ok();
}

// The name of a file without its leading slash.
const char* bare(const char* name) { return name + 1; }

// Returns false if the group cannot be read. If `used` is true and the group has a limit, also reads the
// group's usage.
bool read_group(const System& system, Version version, const std::string& path, bool used,
                HostTexts::Group& group) {
  const host_memory::Files files = host_memory::files_of(version);
  for (const char* name : files.limits) {
    if (name == nullptr) continue;
    const Status read = system.read_group(path, bare(name), group.limits.emplace_back());
    if (!read.ok() && !is_absent(read)) return false;
  }
  return !used || !limit_of(group) ||
         (system.read_group(path, bare(files.usage), group.usage).ok() &&
          system.read_group(path, "memory.stat", group.stat).ok());
}

// Reads the groups of the process from the root down. Returns false if a group cannot be read. The folders
// above a step's folder belong to the whole job.
bool read_groups(const System& system, const MemoryGroup& its, bool used, HostTexts& texts) {
  if (!is_visible(system, its.path)) return false;
  texts.version = its.version;
  const std::size_t step = its.path.find("/step_");
  for (std::size_t end = 0; texts.groups.size() < kMostGroups; end = its.path.find('/', end + 1)) {
    HostTexts::Group& group = texts.groups.emplace_back();
    group.of_job = step != std::string::npos && end <= step;
    if (!read_group(system, its.version, its.path.substr(0, end), used, group)) return false;
    if (end >= its.path.size()) return true;
  }
  return true;
}

// Reads the name of the process's memory cgroup. Returns false if the name cannot be read. Returns true with
// an empty `group` if there is no memory cgroup.
bool find_group(const System& system, pid_t pid, std::optional<MemoryGroup>& group) {
  std::string text;
  const Status read = system.read_file("/proc/" + std::to_string(pid) + "/cgroup", text);
  group = memory_group(text);
  return read.ok() || is_absent(read);  // a kernel without cgroups lacks this file
}

}  // namespace

HostMost host_most_in(const HostTexts& texts) {
  std::optional<Bytes> all, of_job;
  for (const HostTexts::Group& group : texts.groups) {
    all = host_memory::lower(all, limit_of(group));
    if (group.of_job) of_job = host_memory::lower(of_job, limit_of(group));
  }
  const auto most = [](const std::optional<Bytes>& limit) {
    return limit ? std::max(minus(*limit, host_memory::margin(*limit)), Bytes{1}) : Bytes{};
  };
  return {.of_step = most(all), .of_job = most(of_job)};
}

std::optional<HostMost> host_most(const System& system, pid_t pid) {
  std::optional<MemoryGroup> group;
  HostTexts texts;
  if (!find_group(system, pid, group) || (group && !read_groups(system, *group, false, texts)))
    return std::nullopt;
  return host_most_in(texts);
}

std::optional<HostCharge> host_charge(const System& system, pid_t pid) {
  std::optional<MemoryGroup> group;
  std::string usage, status;
  if (!find_group(system, pid, group) || !group || !is_visible(system, group->path)) return std::nullopt;
  HostCharge charge{.group = system.group_folder(group->path), .of_group = {}, .of_process = {}};
  if (!system.read_group(group->path, bare(host_memory::files_of(group->version).usage), usage).ok() ||
      !system.read_file("/proc/" + std::to_string(pid) + "/status", status).ok())
    return std::nullopt;
  const std::optional<std::uint64_t> charged = host_memory::number(usage);
  const bool has_memory = status.find("\nVmRSS:") != std::string::npos;  // false while the process exits
  if (!charged || !has_memory) return std::nullopt;
  charge.of_group = Bytes{*charged};
  for (const char* key : {"VmRSS:\t", "VmSwap:\t", "HugetlbPages:\t"})
    charge.of_process += kibibytes(host_memory::field(status, key));
  return charge;
}

std::optional<Bytes> room_in(const HostTexts& texts, Bytes uncharged) {
  const Bytes total = host_memory::total_in(texts.meminfo);
  if (total == Bytes{}) return std::nullopt;
  Bytes least = host_memory::room(total, minus(total, host_memory::available_in(texts.meminfo)));
  // With vm.overcommit_memory=2, the Linux kernel commits memory only up to CommitLimit, and mmap() fails
  // beyond that limit.
  if (texts.overcommit.starts_with('2')) {
    const Bytes limit = kibibytes(host_memory::field(texts.meminfo, "CommitLimit:"));
    const Bytes used = kibibytes(host_memory::field(texts.meminfo, "Committed_AS:"));
    least = std::min(least, host_memory::room(limit, used));
  }
  for (const HostTexts::Group& group : texts.groups)
    if (const auto limit = limit_of(group))
      least = std::min(
          least, host_memory::room(*limit,
                                   host_memory::used_in(texts.version, group.usage, group.stat) + uncharged));
  return least;
}

std::optional<Bytes> host_room(const System& system, pid_t pid, Bytes uncharged) {
  HostTexts texts;
  std::optional<MemoryGroup> group;
  if (!find_group(system, pid, group)) return std::nullopt;
  if (!system.read_file("/proc/meminfo", texts.meminfo).ok()) return std::nullopt;
  if (const Status read = system.read_file("/proc/sys/vm/overcommit_memory", texts.overcommit);
      !read.ok() && !is_absent(read))
    return std::nullopt;
  if (group && !read_groups(system, *group, true, texts)) return std::nullopt;
  return room_in(texts, uncharged);
}

}  // namespace sharedgpu
