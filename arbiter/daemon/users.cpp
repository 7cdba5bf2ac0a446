// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/users.h"

#include "protocol/split.h"

namespace sharedgpu {

std::optional<uid_t> find_user(const System& system, const std::string& name) {
  if (const auto number = parse_number<uid_t>(name)) return number;
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
