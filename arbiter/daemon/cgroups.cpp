// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/cgroups.h"

#include <charconv>
#include <vector>

#include "protocol/split.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

std::optional<std::uint32_t> parse_number(std::string_view text) {
  std::uint32_t number = 0;
  auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || rest != text.data() + text.size()) return std::nullopt;
  return number;
}

bool starts_with(std::string_view text, std::string_view head) { return text.substr(0, head.size()) == head; }

bool ends_with(std::string_view text, std::string_view tail) {
  return text.size() >= tail.size() && text.substr(text.size() - tail.size()) == tail;
}

// v1: .../slurm[_NODE]/uid_U/job_J/step_S; v2: .../[NODE_]slurmstepd.scope/job_J/step_S.
std::optional<StepName> step_of_path(std::string_view path) {
  std::vector<std::string_view> folders = split(path, '/');
  for (std::size_t i = 0; i < folders.size(); ++i) {
    if (folders[i] == "user.slice") return std::nullopt;
    if (!starts_with(folders[i], "job_") || i == 0) continue;
    bool v2 = ends_with(folders[i - 1], "slurmstepd.scope");
    bool v1 = i >= 2 && starts_with(folders[i - 1], "uid_") && starts_with(folders[i - 2], "slurm");
    if (!v1 && !v2) continue;
    auto job = parse_number(folders[i].substr(4));
    if (!job || *job == 0 || i + 1 >= folders.size()) return std::nullopt;
    auto step = step_of_folder(folders[i + 1]);
    if (!step) return std::nullopt;
    return StepName{.job = *job, .step = *step};
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint32_t> step_of_folder(std::string_view folder) {
  if (!starts_with(folder, "step_")) return std::nullopt;
  return parse_step(folder.substr(5, folder.find('+') - 5));
}

std::optional<StepName> step_of_cgroup(std::string_view text) {
  for (std::string_view line : split(text, '\n')) {
    // hierarchy:controllers:path
    std::size_t first = line.find(':');
    std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    if (auto step = step_of_path(line.substr(second + 1))) return step;
  }
  return std::nullopt;
}

// v1: .../step_S/task_T; v2: .../step_S/user/task_T.
std::optional<std::uint32_t> task_of_cgroup(std::string_view text) {
  constexpr std::string_view kTask = "task_";
  for (const std::string_view line : split(text, '\n')) {
    bool in_step = false;
    for (const std::string_view folder : split(line, '/')) {
      if (in_step && starts_with(folder, kTask))
        if (const auto task = parse_number(folder.substr(kTask.size()))) return task;
      in_step = in_step || step_of_folder(folder).has_value();
    }
  }
  return std::nullopt;
}

std::string sluid_folder(std::string_view path) {
  constexpr std::size_t kSluidSize = 14;
  std::string folder;
  bool below_scope = false;
  bool below_job = false;
  for (std::string_view name : split(path, '/')) {
    if (name.empty()) continue;
    if (name == "user.slice") return {};
    folder.append("/").append(name);
    if (below_job) return step_of_folder(name) ? folder : std::string();
    below_job = below_scope && name.size() == kSluidSize && name[0] == 's';
    if (below_scope && !below_job) return {};
    below_scope = ends_with(name, "slurmstepd.scope");
  }
  return {};
}

std::optional<std::uint32_t> job_of_title(std::string_view title) {
  constexpr std::string_view kHead = "slurmstepd: [";
  if (!starts_with(title, kHead)) return std::nullopt;
  title.remove_prefix(kHead.size());
  return parse_number(title.substr(0, title.find('.')));
}

}  // namespace sharedgpu
