// SPDX-License-Identifier: Apache-2.0
// The administrators are root, SlurmUser and AdminUsers. All tenants are visible to the administrators and
// StatusUsers.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

#include "arbiter/daemon/system.h"
#include "config/settings.h"

namespace sharedgpu {

// Returns the uid of the named user. If `name` is a number, returns that number.
std::optional<uid_t> find_user(const System& system, const std::string& name);

class Administrators {
 public:
  Administrators() = default;  // root alone
  // Skips users that do not exist, and sets `unknown` to their names, except for a missing SlurmUser.
  Administrators(const System& system, const Settings& settings, std::string& unknown);
  bool has(uid_t uid) const { return users_.count(uid) != 0; }
  bool sees_all(uid_t uid) const { return has(uid) || viewers_.count(uid) != 0; }

 private:
  std::set<uid_t> users_{0};
  std::set<uid_t> viewers_;
};

}  // namespace sharedgpu
