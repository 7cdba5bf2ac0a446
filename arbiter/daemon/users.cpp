// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/users.h"

#include "protocol/split.h"

namespace sharedgpu {

std::optional<uid_t> find_user(const System& system, const std::string& name) {
  if (const auto number = parse_number<uid_t>(name)) return number;
  return system.find_user(name);
}

Administrators::Administrators(const System& system, const Settings& settings, std::string& unknown) {
  const auto add = [&](const std::vector<std::string>& names, std::set<uid_t>& users) {
    for (const std::string& name : names) {
      if (auto uid = find_user(system, name))
        users.insert(*uid);
      else
        unknown += (unknown.empty() ? "" : ", ") + name;
    }
  };
  if (auto uid = find_user(system, settings.slurm_user)) users_.insert(*uid);
  add(settings.admin_users, users_);
  add(settings.status_users, viewers_);
}

}  // namespace sharedgpu
