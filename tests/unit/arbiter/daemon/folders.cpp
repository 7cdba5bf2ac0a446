// SPDX-License-Identifier: Apache-2.0
// The folders in which the arbiter creates files: their owners, and the lock that admits one arbiter at a
// time.
#include "arbiter/daemon/folders.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <filesystem>
#include <string>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

namespace fs = std::filesystem;

void set_mode(const std::string& path, mode_t mode) { REQUIRE(chmod(path.c_str(), mode) == 0); }

TEST_CASE("A folder is accepted if no other user can replace our files there") {
  const test::TemporaryFolder temporary;  // below /tmp, which has the sticky bit
  const std::string parent = temporary.path + "/parent";
  const std::string folder = parent + "/folder";
  REQUIRE(make_folder(folder, 0755).ok());
  CHECK(check_folder(folder).ok());
  set_mode(folder, 0777);
  CHECK(check_folder(folder).message() == "all users may write to " + folder);
  set_mode(folder, 01777);  // any user may create the files that the arbiter would create
  CHECK(check_folder(folder).message() == "all users may write to " + folder);
  set_mode(folder, 0775);
  CHECK(check_folder(folder).ok());
  set_mode(parent, 0777);
  CHECK(check_folder(folder).message() == "all users may write to " + parent);
  set_mode(parent, 01777);
  CHECK(check_folder(folder).ok());
  CHECK(check_folder(parent + "/none").code() == ENOENT);
}

TEST_CASE(
    "A folder of another user is not ours, nor one that is reached by a link of another user or below one") {
  if (geteuid() != 0) {
    WARN("needs root to make files of another user: not tested");
    return;
  }
  constexpr uid_t kOther = 4321;
  const test::TemporaryFolder temporary;
  const std::string parent = temporary.path + "/parent";
  const std::string folder = parent + "/folder";
  const std::string link = temporary.path + "/link";
  REQUIRE(make_folder(folder, 0755).ok());
  fs::create_symlink(parent, link);
  CHECK(check_folder(link + "/folder").ok());
  REQUIRE(lchown(link.c_str(), kOther, kOther) == 0);
  CHECK(check_folder(link + "/folder").message() == link + " belongs to uid 4321");
  REQUIRE(lchown(link.c_str(), 0, 0) == 0);
  REQUIRE(chown(parent.c_str(), kOther, kOther) == 0);
  CHECK(check_folder(folder).message() == parent + " belongs to uid 4321");
  // The link belongs to this user, but the parent of its target does not.
  CHECK(check_folder(link + "/folder").message() == parent + " belongs to uid 4321");
}

TEST_CASE("A folder is locked by one process, and a second process gets the first one's pid") {
  const test::TemporaryFolder temporary;
  UniqueFd lock;
  REQUIRE(lock_folder(temporary.path, lock).ok());
  const auto in_child = [&](auto&& test) {
    const pid_t child = fork();
    if (child == 0) _exit(test() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return status == 0;
  };
  const pid_t holder = getpid();
  const auto taken = [&] {
    UniqueFd other;
    const Status locked = lock_folder(temporary.path, other);
    return locked.code() == EBUSY && !other &&
           locked.message() ==
               temporary.path + ": another arbiter (pid " + std::to_string(holder) + ") uses this folder";
  };
  CHECK(in_child(taken));
  lock.reset();
  CHECK_FALSE(in_child(taken));
}

}  // namespace
}  // namespace sharedgpu
