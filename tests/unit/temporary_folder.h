// SPDX-License-Identifier: Apache-2.0
// A folder of a test's own, removed with all that is in it.
#pragma once

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace sharedgpu::test {

struct TemporaryFolder {
  std::string path;
  TemporaryFolder() {
    char name[] = "/tmp/sharedgpu-test-XXXXXX";
    REQUIRE(mkdtemp(name) != nullptr);
    path = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
};

}  // namespace sharedgpu::test
