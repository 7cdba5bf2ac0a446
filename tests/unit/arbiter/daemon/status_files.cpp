// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/status_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <catch2/catch.hpp>

#include <cerrno>

#include "systems.h"

namespace sharedgpu::test {
namespace {

off_t size_of(const UniqueFd& file) {
  struct stat info = {};
  REQUIRE(fstat(file.get(), &info) == 0);
  return info.st_size;
}

TEST_CASE("A status file holds the text, and its receiver can neither change nor resize it") {
  StatusFiles files(kHostSystem);
  CHECK(files.newest() == nullptr);
  const std::string text(100000, 'x');
  REQUIRE(files.add(text).ok());
  const StatusFiles::File& file = *files.newest();
  CHECK(file.size == text.size());
  std::string read(text.size() + 1, '\0');
  CHECK(pread(file.to_read.get(), read.data(), read.size(), 0) == static_cast<ssize_t>(text.size()));
  CHECK(read.substr(0, text.size()) == text);

  CHECK(write(file.to_read.get(), "y", 1) == -1);
  CHECK(ftruncate(file.to_read.get(), 0) == -1);
  CHECK(mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, file.to_read.get(), 0) == MAP_FAILED);
  CHECK(fcntl(file.to_read.get(), F_ADD_SEALS, F_SEAL_SHRINK) == -1);
  struct stat info = {};
  REQUIRE(fstat(file.to_read.get(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0444);  // so that no other user can open the file for writing
}

TEST_CASE("Each viewer gets the newest text that was made for it") {
  StatusFiles files(kHostSystem);
  REQUIRE(files.add("all").ok());
  REQUIRE(files.add("one", 1001).ok());
  CHECK(files.newest()->size == 3);
  CHECK(files.newest(1002) == nullptr);
  REQUIRE(files.add("other", 1002).ok());
  CHECK(files.newest(1001)->size == 3);
  CHECK(files.newest(1002)->size == 5);
}

TEST_CASE("Status files beyond a few are emptied, whoever holds them") {
  StatusFiles files(kHostSystem);
  REQUIRE(files.add("first").ok());
  const UniqueFd held = kHostSystem.duplicate(files.newest()->to_read.get());
  for (std::size_t i = 1; i < StatusFiles::kMost; ++i) REQUIRE(files.add("another").ok());
  CHECK(size_of(held) == 5);
  REQUIRE(files.add("last").ok());
  CHECK(size_of(held) == 0);
  CHECK(size_of(files.newest()->to_read) == 4);
}

TEST_CASE("A status file that cannot be made leaves the others as they are") {
  FaultySystem system;
  StatusFiles files(system);
  REQUIRE(files.add("first").ok());
  system.memory_files = EMFILE;
  CHECK(files.add("second").code() == EMFILE);
  CHECK(files.newest()->size == 5);
}

}  // namespace
}  // namespace sharedgpu::test
