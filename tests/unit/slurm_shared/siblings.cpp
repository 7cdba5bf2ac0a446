// SPDX-License-Identifier: Apache-2.0
// Checks that the plugins find the other files of the installation, from a prefix and from Slurm's own plugin
// folder.
#include "slurm_shared/siblings.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/unit/temporary_folder.h"

namespace {

using sharedgpu::find_above;
using sharedgpu::test::TemporaryFolder;

void create(const std::filesystem::path& file) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file) << "x";
}

TEST_CASE("A file is found from each place where plugins are installed") {
  const TemporaryFolder root;
  const std::string prefix = root.path + "/usr";
  create(prefix + "/bin/sharedgpu");
  for (const char* plugins : {"/lib/slurm", "/lib64/slurm", "/lib/x86_64-linux-gnu/slurm-wlm"})
    CHECK(find_above(prefix + plugins, "bin/sharedgpu") == prefix + "/bin/sharedgpu");
}

TEST_CASE("The nearest folder that has the file is taken") {
  const TemporaryFolder root;
  const std::string site = root.path + "/opt/site", prefix = site + "/sharedgpu";
  create(site + "/bin/sharedgpu");
  create(prefix + "/bin/sharedgpu");
  CHECK(find_above(prefix + "/lib/slurm", "bin/sharedgpu") == prefix + "/bin/sharedgpu");
}

TEST_CASE("Without the file, its path in the prefix is named") {
  CHECK(find_above("/no/such/prefix/lib/slurm", "bin/sharedgpu") == "/no/such/prefix/bin/sharedgpu");
  CHECK(find_above("/slurm", "no/file").empty());
  CHECK(find_above("slurm", "no/file").empty());
  CHECK(find_above("", "no/file").empty());
}

}  // namespace
