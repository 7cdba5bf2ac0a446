// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/cgroups.h"

#include <utility>
#include <vector>

#include "protocol/split.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

bool starts_with(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

bool is_sluid(std::string_view name) {
  constexpr std::size_t kSluidSize = 14;
  return name.size() == kSluidSize && name[0] == 's';
}

// Returns the number of the job whose folder is `folders[i]`; 0 if the folder names the job by its SLUID;
// nullopt if the folder does not belong to a job.
std::optional<std::uint32_t> job_of(const std::vector<std::string_view>& folders, std::size_t i) {
  const bool v2 = i >= 1 && ends_with(folders[i - 1], "slurmstepd.scope");
  const bool v1 = i >= 2 && starts_with(folders[i - 1], "uid_") && starts_with(folders[i - 2], "slurm");
  if (v2 && is_sluid(folders[i])) return 0;
  if ((!v1 && !v2) || !starts_with(folders[i], "job_")) return std::nullopt;
  const auto job = parse_number<std::uint32_t>(folders[i].substr(4));
  return job != 0u ? job : std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> step_of_folder(std::string_view folder) {
  if (!starts_with(folder, "step_")) return std::nullopt;
  return parse_step(folder.substr(5, folder.find('+') - 5));
}

std::optional<StepFolder> step_folder(std::string_view line) {
  const std::vector<std::string_view> parts = split(line, ':');  // hierarchy:controllers:path
  if (parts.size() < 3) return std::nullopt;
  const std::vector<std::string_view> folders =
      split(line.substr(parts[0].size() + parts[1].size() + 2), '/');
  StepFolder found{.controllers = std::string(parts[1]), .path = {}, .job = {}};
  for (std::size_t i = 0; i < folders.size(); ++i) {
    // ".." means that the cgroup is outside this process's cgroup namespace.
    if (folders[i] == "user.slice" || folders[i] == "..") return std::nullopt;
    if (folders[i].empty()) continue;
    found.path.append("/").append(folders[i]);
    const auto job = job_of(folders, i);
    if (!job) continue;
    const auto step = i + 1 < folders.size() ? step_of_folder(folders[i + 1]) : std::nullopt;
    if (!step) return std::nullopt;
    found.path.append("/").append(folders[i + 1]);
    if (*job != 0) found.job = job;
    found.step = *step;
    return found;
  }
  return std::nullopt;
}

// The folder of task T is .../step_S/task_T in v1, and .../step_S/user/task_T in v2.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text) {
  constexpr std::string_view kTask = "task_";
  for (const std::string_view line : split(text, '\n')) {
    bool in_step = false;
    for (const std::string_view folder : split(line, '/')) {
      if (in_step && starts_with(folder, kTask))
        if (const auto task = parse_number<std::uint32_t>(folder.substr(kTask.size()))) return task;
      in_step = in_step || step_of_folder(folder).has_value();
    }
  }
  return std::nullopt;
}

// A controller is in one hierarchy only: if a v1 line lists it, v2 does not have it.
std::optional<MemoryGroup> memory_group(std::string_view text) {
  std::optional<MemoryGroup> found;
  for (const std::string_view line : split(text, '\n')) {
    const std::vector<std::string_view> parts = split(line, ':');  // hierarchy:controllers:path
    if (parts.size() < 3) continue;
    const bool v1 = host_memory::lists(parts[1], "memory");
    if (!v1 && (found || !parts[1].empty())) continue;
    std::string path(line.substr(parts[0].size() + parts[1].size() + 2));
    if (path == "/") path.clear();
    found = {.version = v1 ? host_memory::Version::v1 : host_memory::Version::v2, .path = std::move(path)};
    if (v1) return found;
  }
  return found;
}

std::optional<std::uint32_t> job_of_title(std::string_view title) {
  constexpr std::string_view kHead = "slurmstepd: [";
  if (!starts_with(title, kHead)) return std::nullopt;
  title.remove_prefix(kHead.size());
  return parse_number<std::uint32_t>(title.substr(0, title.find('.')));
}

}  // namespace sharedgpu
