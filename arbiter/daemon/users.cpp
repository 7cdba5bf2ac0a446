// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/users.h"

#include <charconv>

namespace sharedgpu {

std::optional<uid_t> find_user(const System& system, const std::string& name) {
  uid_t number = 0;
  auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc{} && rest == name.data() + name.size()) return number;
  return system.find_user(name);
}

Administrators::Administrators(const System& system, const Settings& settings, std::string& unknown) {
  if (auto uid = find_user(system, settings.slurm_user)) users_.insert(*uid);
  for (const std::string& name : settings.admin_users) {
    if (auto uid = find_user(system, name))
      users_.insert(*uid);
    else
      unknown += (unknown.empty() ? "" : ", ") + name;
  }
}

}  // namespace sharedgpu
