// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/users.h"

#include <pwd.h>

#include <map>

namespace sharedgpu::cli {

std::string user_name(std::uint32_t uid) {
  static std::map<std::uint32_t, std::string> known;
  const auto [entry, is_new] = known.try_emplace(uid);
  if (is_new) {
    const passwd* user = getpwuid(uid);
    entry->second = user == nullptr ? std::to_string(uid) : user->pw_name;
  }
  return entry->second;
}

}  // namespace sharedgpu::cli
