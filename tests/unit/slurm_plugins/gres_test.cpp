// SPDX-License-Identifier: GPL-2.0-or-later
// The GRES plugin counts records whose layout is the declared one, and no others.
#include <catch2/catch.hpp>
#include <cstdint>
#include <vector>

#include "gres/slurm_abi/gres.h"

struct list_t {
  std::vector<gres_slurmd_conf_t*> items;
};

namespace {

constexpr std::uint32_t kNumber = 1234;
int errors = 0;

}  // namespace

extern "C" {

int gres_p_node_config_load(list_t* records, node_config_load_t* node);
std::uint64_t sharedgpu_units_advertised();

std::uint32_t gres_build_id(char*) { return kNumber; }
int slurm_list_for_each(list_t* list, int (*visit)(void*, void*), void* argument) {
  for (gres_slurmd_conf_t* item : list->items) visit(item, argument);
  return 0;
}
int slurm_env_array_overwrite(char***, const char*, const char*) { return 1; }
void slurm_unsetenvp(char**, const char*) {}
void slurm_info(const char*, ...) {}
void slurm_error(const char*, ...) { ++errors; }
void slurm_debug(const char*, ...) {}
}

namespace {

gres_slurmd_conf_t record(char* name, std::uint64_t count, std::uint32_t number) {
  gres_slurmd_conf_t result = {};
  result.name = name;
  result.count = count;
  result.plugin_id = number;
  return result;
}

std::uint64_t units_of(list_t records) {
  REQUIRE(gres_p_node_config_load(&records, nullptr) == 0);
  return sharedgpu_units_advertised();
}

TEST_CASE("Records of sharedgpu are added up") {
  char name[] = "sharedgpu";
  char other[] = "gpu";
  auto one = record(name, 8, kNumber);
  auto two = record(name, 4, kNumber);
  auto gpu = record(other, 2, 7);
  CHECK(units_of({{&one, &gpu, &two}}) == 12);
}

TEST_CASE("Nothing is believed of a record whose last member is not the number of its name") {
  // What stands where the name would be may be anything, so it must not be followed.
  auto* wild = reinterpret_cast<char*>(std::uintptr_t{8});
  auto strange = record(wild, 8, 0);
  CHECK(units_of({{&strange}}) == 0);
}

TEST_CASE("No records") {
  CHECK(units_of({}) == 0);
  CHECK(gres_p_node_config_load(nullptr, nullptr) == 0);
}

}  // namespace
