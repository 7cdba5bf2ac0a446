// SPDX-License-Identifier: Apache-2.0
#include "exporter/text_file.h"

#include <sys/stat.h>
#include <catch2/catch.hpp>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/unit/temporary_folder.h"

namespace sharedgpu::exporter {
namespace {

std::string contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_CASE("The file is replaced as a whole, all users can read it, and no other file is left") {
  const test::TemporaryFolder folder;
  const std::string path = folder.path + "/sharedgpu.prom";
  CHECK(write_text_file(path, "long contents\n").empty());
  std::ifstream reader(path);  // a reader that keeps the old file open
  CHECK(write_text_file(path, "new\n").empty());
  CHECK(contents(path) == "new\n");
  CHECK(std::string(std::istreambuf_iterator<char>(reader), {}) == "long contents\n");
  struct stat info = {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0644);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("A file that cannot be written is an error that names it, and leaves nothing") {
  const test::TemporaryFolder folder;
  CHECK(write_text_file(folder.path + "/none/x.prom", "text") ==
        folder.path + "/none/x.prom: No such file or directory");
  std::filesystem::create_directory(folder.path + "/x.prom");
  CHECK(write_text_file(folder.path + "/x.prom", "text") == folder.path + "/x.prom: Is a directory");
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path), {}) == 1);
}

}  // namespace
}  // namespace sharedgpu::exporter
