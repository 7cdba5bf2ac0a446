// SPDX-License-Identifier: Apache-2.0
// The users that administer: root, SlurmUser and AdminUsers.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>

#include "arbiter/daemon/system.h"
#include "config/settings.h"

namespace sharedgpu {

// A user's number by name, or a number as it is written.
std::optional<uid_t> find_user(const System& system, const std::string& name);

class Administrators {
 public:
  Administrators() = default;  // root alone
  // Users that do not exist are passed over and named in `unknown`; a missing SlurmUser is not worth a word.
  Administrators(const System& system, const Settings& settings, std::string& unknown);
  bool has(uid_t uid) const { return users_.count(uid) != 0; }

 private:
  std::set<uid_t> users_{0};
};

}  // namespace sharedgpu
