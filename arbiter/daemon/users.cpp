// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/users.h"

#include <pwd.h>

#include <charconv>
#include <vector>

namespace sharedgpu {

std::optional<uid_t> find_user(const std::string& name) {
  uid_t number = 0;
  auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc{} && rest == name.data() + name.size()) return number;
  std::vector<char> buffer(16384);
  passwd entry = {};
  passwd* found = nullptr;
  if (getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr)
    return std::nullopt;
  return found->pw_uid;
}

Administrators::Administrators(const Settings& settings, std::string& unknown) {
  if (auto uid = find_user(settings.slurm_user)) users_.insert(*uid);
  for (const std::string& name : settings.admin_users) {
    if (auto uid = find_user(name))
      users_.insert(*uid);
    else
      unknown += (unknown.empty() ? "" : ", ") + name;
  }
}

}  // namespace sharedgpu
