// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/check.h"

#include <cstdio>
#include <filesystem>
#include <utility>

#include "arbiter/daemon/folders.h"
#include "arbiter/daemon/users.h"

namespace sharedgpu {
namespace {

// The arbiter creates missing folders. For a missing folder, checks the lowest existing folder above it.
std::string trouble_with_folder(std::filesystem::path folder) {
  std::error_code error;
  while (!folder.empty() && folder != folder.root_path() && !std::filesystem::exists(folder, error))
    folder = folder.parent_path();
  return check_folder(folder).message();
}

}  // namespace

std::vector<std::string> doubts_about(const Settings& settings, const System& system) {
  std::vector<std::string> doubts;
  const auto add_folder = [&](const char* key, const std::filesystem::path& folder) {
    if (const std::string trouble = trouble_with_folder(folder); !trouble.empty())
      doubts.push_back(std::string(key) + ": " + trouble);
  };
  add_folder("Socket", std::filesystem::path(settings.socket).parent_path());
  add_folder("StateDir", settings.state_dir);
  if (!settings.log_file.empty())
    add_folder("LogFile", std::filesystem::path(settings.log_file).parent_path());
  std::vector<std::pair<const char*, std::string>> users;
  if (settings.slurm_user != Settings().slurm_user) users.emplace_back("SlurmUser", settings.slurm_user);
  for (const std::string& name : settings.admin_users) users.emplace_back("AdminUsers", name);
  for (const std::string& name : settings.status_users) users.emplace_back("StatusUsers", name);
  for (const auto& [key, name] : users)
    if (!find_user(system, name))
      doubts.push_back(std::string(key) + ": no user '" + name + "' on this host");
  return doubts;
}

int check_settings(const std::string& path) {
  Settings settings;
  const Reading reading = read_in_spite_of_errors(path, settings);
  for (const std::string& error : reading.errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!reading.readable) return 2;
  for (const std::string& doubt : doubts_about(settings, System()))
    std::fprintf(stderr, "%s: warning: %s\n", path.c_str(), doubt.c_str());
  if (!reading.errors.empty()) return 1;
  std::printf("%s: ok\n", path.c_str());
  const std::vector<KeyValue> chosen = chosen_values(settings);
  for (const auto& [key, value] : chosen) std::printf("  %s=%s\n", key.c_str(), value.c_str());
  if (chosen.empty()) std::printf("  every key has its default\n");
  return std::fflush(stdout) == 0 ? 0 : 2;
}

}  // namespace sharedgpu
