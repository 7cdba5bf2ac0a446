// SPDX-License-Identifier: Apache-2.0
#include "protocol/replace_file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <fstream>
#include <iterator>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

TEST_CASE("A file is replaced as a whole, or stays unchanged if the replacement fails") {
  test::TemporaryFolder folder;
  const std::string path = folder.path + "/a file";
  const Durable durable = GENERATE(Durable::no, Durable::yes);
  REQUIRE(replace_file(path, "old", durable).ok());
  REQUIRE(replace_file(path, std::string(100'000, 'x'), durable).ok());
  CHECK(text_of(path) == std::string(100'000, 'x'));
  struct stat info = {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0600);
  CHECK(access((path + ".new").c_str(), F_OK) != 0);
  SECTION("a folder is in the way of the new file") {
    REQUIRE(mkdir((path + ".new").c_str(), 0700) == 0);
    const Status status = replace_file(path, "new", durable);
    CHECK(status.code() == EEXIST);
    CHECK(status.message().find(path + ": ") == 0);
    CHECK(text_of(path) == std::string(100'000, 'x'));
  }
  SECTION("a symbolic link in its place is not followed") {
    REQUIRE(symlink((folder.path + "/other").c_str(), (path + ".new").c_str()) == 0);
    REQUIRE(replace_file(path, "new", durable).ok());
    CHECK(text_of(path) == "new");
    CHECK(access((folder.path + "/other").c_str(), F_OK) != 0);
  }
  SECTION("an unfinished file of a process that has died is replaced") {
    std::ofstream(path + ".new") << "unfinished";
    REQUIRE(replace_file(path, "new", durable).ok());
    CHECK(text_of(path) == "new");
  }
  SECTION("the file cannot grow, and nothing unfinished is left") {
    struct rlimit old = {};
    REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
    struct rlimit small = old;
    small.rlim_cur = 10;
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    const Status status = replace_file(path, std::string(100, 'y'), durable);
    REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
    signal(SIGXFSZ, handler);
    CHECK(status.code() == EFBIG);
    CHECK(text_of(path) == std::string(100'000, 'x'));
    CHECK(access((path + ".new").c_str(), F_OK) != 0);
  }
  SECTION("there is no such folder") {
    CHECK(replace_file(folder.path + "/no/file", "new", durable).code() == ENOENT);
  }
}

}  // namespace
}  // namespace sharedgpu
