// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/oci_spec.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "arbiter/cli/mount_point.h"
#include "protocol/environment.h"
#include "protocol/preload.h"

namespace sharedgpu::cli {
namespace {

using nlohmann::json;

constexpr std::string_view kLibrary = "libsharedgpu.so";
constexpr std::string_view kPreload = "LD_PRELOAD";

std::string parent(const std::string& path) {
  return std::filesystem::path(path).lexically_normal().parent_path().string();
}

// Folders that are never mounted from the host, because each container has its own. The same holds for all
// folders directly below /.
constexpr std::string_view kOwnOfContainers[] = {"/dev/shm", "/var/run", "/var/tmp"};

// Returns true if this folder of the host may be mounted in containers. Relative paths are refused.
bool is_for_containers(const std::string& folder) {
  return folder.starts_with('/') && folder.rfind('/') > 0 &&
         std::find(std::begin(kOwnOfContainers), std::end(kOwnOfContainers), folder) ==
             std::end(kOwnOfContainers);
}

bool is_list_of_strings(const json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const json& each) { return each.is_string(); });
}

std::string problem_in(const json& spec) {
  if (!spec.is_object()) return "it is not an object";
  if (const auto process = spec.find("process"); process != spec.end()) {
    if (!process->is_object()) return "'process' is not an object";
    if (process->contains("env") && !is_list_of_strings((*process)["env"]))
      return "'process.env' is not a list of strings";
  }
  if (const auto mounts = spec.find("mounts"); mounts != spec.end() && !mounts->is_array())
    return "'mounts' is not a list";
  return {};
}

// Returns the last entry of the variable `name`, since only the last entry has an effect. Returns null if the
// variable is not set.
json* find_variable(json& environment, std::string_view name) {
  for (auto entry = environment.rbegin(); entry != environment.rend(); ++entry) {
    const auto& text = entry->get_ref<const std::string&>();
    if (text.size() > name.size() && text.starts_with(name) && text[name.size()] == '=') return &*entry;
  }
  return nullptr;
}

std::string value_of(const json* entry, std::string_view name) {
  return entry == nullptr ? "" : entry->get_ref<const std::string&>().substr(name.size() + 1);
}

// Removes the variable if `value` is empty.
void set_variable(json& environment, std::string_view name, const std::string& value) {
  const std::string start = std::string(name) + "=";
  for (auto entry = environment.begin(); entry != environment.end();)
    entry = entry->get_ref<const std::string&>().starts_with(start) ? environment.erase(entry) : entry + 1;
  if (!value.empty()) environment.push_back(start + value);
}

void remove_preload(json& spec) {
  if (!spec.contains("process") || !spec["process"].contains("env")) return;
  json& environment = spec["process"]["env"];
  const std::string preload = value_of(find_variable(environment, kPreload), kPreload);
  if (has_preload(preload, kLibrary)) set_variable(environment, kPreload, without_preload(preload, kLibrary));
}

bool has_mount(const json& mounts, const std::string& folder) {
  return std::any_of(mounts.begin(), mounts.end(),
                     [&](const json& mount) { return is_mounted_at(mount, folder); });
}

// Read-only mounts suffice: processes can connect to a socket on such a mount.
json mount_of(const std::string& folder) {
  return {{"destination", folder},
          {"type", "bind"},
          {"source", folder},
          {"options", {"rbind", "ro", "nosuid", "nodev", "rslave"}}};
}

}  // namespace

JobReach read_reach(const Lookup& lookup, const std::string& library) {
  JobReach job;
  const auto value = [&](const char* name) {
    const char* text = lookup(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string socket = value(environment::kSocket);
  if (library.empty() || socket.empty() || value(environment::kOnNoArbiter).empty()) return {};
  for (const std::string& folder : {parent(library), parent(socket)}) {
    if (!is_for_containers(folder)) {
      job.obstacle = "the folder of " + socket + " is not for sharedgpu alone";
      return job;
    }
    if (std::find(job.folders.begin(), job.folders.end(), folder) == job.folders.end())
      job.folders.push_back(folder);
  }
  job.library = library;
  for (const char* name : environment::kContainerVariables)
    if (const char* text = lookup(name)) job.variables.emplace_back(name, text);
  return job;
}

std::string add_job(json& spec, const JobReach& job, Stated stated) {
  if (std::string problem = problem_in(spec); !problem.empty()) return problem;
  if (job.library.empty()) {
    remove_preload(spec);
    return {};
  }
  json& environment = spec["process"]["env"];
  if (environment.is_null()) environment = json::array();
  const json* preload = find_variable(environment, kPreload);
  const std::string before = value_of(preload, kPreload);
  if (stated == Stated::wins && preload != nullptr && before.empty()) return {};
  set_variable(environment, kPreload, with_preload(before, job.library));
  for (const auto& [name, value] : job.variables)
    if (stated == Stated::yields || find_variable(environment, name) == nullptr)
      set_variable(environment, name, value);
  json& mounts = spec["mounts"];
  if (mounts.is_null()) mounts = json::array();
  for (const std::string& folder : job.folders)
    if (!has_mount(mounts, folder)) mounts.push_back(mount_of(folder));
  return {};
}

}  // namespace sharedgpu::cli
