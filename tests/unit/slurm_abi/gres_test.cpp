// SPDX-License-Identifier: GPL-2.0-or-later
// Records of gres.conf are believed where their layout is the declared one.
#include <catch2/catch.hpp>
#include <cstdint>

#include "gres/slurm_abi/gres.h"

// The number of a name; any function of it serves.
extern "C" std::uint32_t gres_build_id(char* name) { return static_cast<std::uint32_t>(name[0]) * 256 + 1; }

namespace {

gres_slurmd_conf_t record(char* name, std::uint32_t number) {
  gres_slurmd_conf_t result = {};
  result.name = name;
  result.plugin_id = number;
  return result;
}

TEST_CASE("A record is of its name") {
  char ours[] = "sharedgpu";
  char other[] = "shard";  // the same number here
  CHECK(is_record_of(record(ours, gres_build_id(ours)), "sharedgpu"));
  CHECK_FALSE(is_record_of(record(other, gres_build_id(other)), "sharedgpu"));
}

TEST_CASE("The name of a record whose last member is not its number is not followed") {
  auto* wild = reinterpret_cast<char*>(std::uintptr_t{8});
  CHECK_FALSE(is_record_of(record(wild, 0), "sharedgpu"));
}

}  // namespace
