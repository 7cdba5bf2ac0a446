// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/users.h"

#include <catch2/catch.hpp>
#include <string>

#include "systems.h"

namespace sharedgpu {
namespace {

Settings with(const std::string& slurm_user, std::vector<std::string> admin_users) {
  Settings settings;
  settings.slurm_user = slurm_user;
  settings.admin_users = std::move(admin_users);
  return settings;
}

TEST_CASE("Root, SlurmUser and AdminUsers administer") {
  std::string unknown;
  const Administrators some(test::kHostSystem, with("7", {"8", "daemon"}), unknown);
  CHECK(unknown.empty());
  CHECK(some.has(0));
  CHECK(some.has(7));
  CHECK(some.has(8));
  CHECK(some.has(*find_user(test::kHostSystem, "daemon")));
  CHECK_FALSE(some.has(9));
}

TEST_CASE("Administrators and StatusUsers see all tenants, and StatusUsers do not administer") {
  Settings settings = with("7", {"8"});
  settings.status_users = {"9", "nosuchuser"};
  std::string unknown;
  const Administrators some(test::kHostSystem, settings, unknown);
  CHECK(unknown == "nosuchuser");
  for (const uid_t uid : {0, 7, 8, 9}) CHECK(some.sees_all(uid));
  CHECK_FALSE(some.sees_all(10));
  CHECK_FALSE(some.has(9));
}

TEST_CASE("If no user is found by name, root and the users given by number stay administrators") {
  test::FaultySystem system;
  system.users = false;
  CHECK_FALSE(find_user(system, "daemon"));
  CHECK(find_user(system, "12") == std::optional<uid_t>(12));
  std::string unknown;
  const Administrators some(system, with("slurm", {"8", "daemon", "bin"}), unknown);
  CHECK(unknown == "daemon, bin");
  CHECK(some.has(0));
  CHECK(some.has(8));
  CHECK_FALSE(some.has(1));
}

}  // namespace
}  // namespace sharedgpu
