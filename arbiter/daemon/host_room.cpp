// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/host_room.h"

#include <algorithm>
#include <cerrno>

#include "arbiter/daemon/cgroups.h"

namespace sharedgpu {
namespace {

using host_memory::Version;

// A user who may create cgroups can nest thousands. The limits of jobs are in the upper groups.
constexpr std::size_t kMostGroups = 32;

// A missing file sets no limit.
bool is_absent(const Status& read) { return read.code() == ENOENT || read.code() == ENODEV; }

std::optional<Bytes> limit_of(const HostTexts::Group& group) {
  std::optional<Bytes> least;
  for (const std::string& limit : group.limits)
    least = host_memory::lower(least, host_memory::limit_in(limit));
  return least;
}

// Returns the folder of the group; empty if not visible.
std::string find_folder(const System& system, const MemoryGroup& group, std::string& mount) {
  const std::string base = "/sys/fs/cgroup";
  const std::vector<std::string> mounts =
      group.version == Version::v1 ? std::vector{base + "/memory"} : std::vector{base, base + "/unified"};
  if (group.path.find("/..") != std::string::npos) return {};
  for (const std::string& each : mounts) {
    uid_t owner = 0;
    mount = each;
    if (system.owner_of(each + group.path, owner).ok()) return each + group.path;
  }
  return {};
}

// Returns false if the group cannot be read.
bool read_group(const System& system, Version version, const std::string& folder, HostTexts::Group& group) {
  const host_memory::Files files = host_memory::files_of(version);
  for (const char* name : files.limits) {
    if (name == nullptr) continue;
    const Status read = system.read_file(folder + name, group.limits.emplace_back());
    if (!read.ok() && !is_absent(read)) return false;
  }
  return !limit_of(group) || (system.read_file(folder + files.usage, group.usage).ok() &&
                              system.read_file(folder + "/memory.stat", group.stat).ok());
}

// Reads the groups of the process from the root down. Returns false if they cannot be read.
bool read_groups(const System& system, const MemoryGroup& its, HostTexts& texts) {
  std::string mount;
  const std::string folder = find_folder(system, its, mount);
  if (folder.empty()) return false;
  texts.version = its.version;
  for (std::size_t end = mount.size(); texts.groups.size() < kMostGroups; end = folder.find('/', end + 1)) {
    if (!read_group(system, its.version, folder.substr(0, end), texts.groups.emplace_back())) return false;
    if (end >= folder.size()) return true;
  }
  return true;
}

}  // namespace

std::optional<Bytes> room_in(const HostTexts& texts) {
  const Bytes total = host_memory::total_in(texts.meminfo);
  if (total == Bytes{}) return std::nullopt;
  Bytes least = host_memory::room(total, minus(total, host_memory::available_in(texts.meminfo)));
  // In this mode the kernel commits no more memory than it has, and mmap() fails beyond that.
  if (texts.overcommit.starts_with('2')) {
    const Bytes limit = kibibytes(host_memory::field(texts.meminfo, "CommitLimit:"));
    const Bytes used = kibibytes(host_memory::field(texts.meminfo, "Committed_AS:"));
    least = std::min(least, host_memory::room(limit, used));
  }
  for (const HostTexts::Group& group : texts.groups)
    if (const auto limit = limit_of(group))
      least = std::min(
          least, host_memory::room(*limit, host_memory::used_in(texts.version, group.usage, group.stat)));
  return least;
}

std::optional<Bytes> host_room(const System& system, pid_t pid) {
  HostTexts texts;
  std::string cgroup;
  // A kernel without cgroups lacks this file.
  if (const Status read = system.read_file("/proc/" + std::to_string(pid) + "/cgroup", cgroup);
      !read.ok() && !is_absent(read))
    return std::nullopt;
  if (!system.read_file("/proc/meminfo", texts.meminfo).ok()) return std::nullopt;
  if (const Status read = system.read_file("/proc/sys/vm/overcommit_memory", texts.overcommit);
      !read.ok() && !is_absent(read))
    return std::nullopt;
  if (const auto group = memory_group(cgroup); group && !read_groups(system, *group, texts))
    return std::nullopt;
  return room_in(texts);
}

}  // namespace sharedgpu
