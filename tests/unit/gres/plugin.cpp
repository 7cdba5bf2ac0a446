// SPDX-License-Identifier: GPL-2.0-or-later
// The GRES plugin counts only records that have the declared layout, lets Slurm number the units, and lists
// the device files to which the units give access.
#include <arpa/inet.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "slurm_shared/abi/gres.h"
#include "slurm_shared/offer.h"

struct bitstr_t {
  std::vector<bool> bits;
};
struct list_t {
  std::vector<void*> items;
};
// A fake of Slurm's host list with one name, which is no range.
struct hostlist {
  std::string name;
  bool empty = false;
};

namespace {

constexpr std::uint32_t kNumber = 1234;
int errors = 0;
std::map<std::string, std::string> environment;

}  // namespace

extern "C" {

int gres_p_node_config_load(list_t* records, node_config_load_t* node);
SharedGpuOfferFunction sharedgpu_offer;
void gres_p_send_stepd(buf_t* buffer);
void gres_p_recv_stepd(buf_t* buffer);
list_t* gres_p_get_devices();
int fini();
void gres_p_job_set_env(char*** variables, bitstr_t* units, std::uint64_t count, gres_internal_flags_t flags);
void gres_p_step_set_env(char*** variables, bitstr_t* units, std::uint64_t count,
                         gres_internal_flags_t flags);

std::uint32_t gres_build_id(char*) { return kNumber; }
int slurm_list_for_each(list_t* list, int (*visit)(void*, void*), void* argument) {
  for (void* item : list->items) visit(item, argument);
  return 0;
}
list_t* slurm_list_create(void (*)(void*)) { return new list_t; }
void slurm_list_append(list_t* list, void* item) { list->items.push_back(item); }
void slurm_list_destroy(list_t* list) { delete list; }
hostlist* slurm_hostlist_create(const char* text) { return new hostlist{text}; }
char* slurm_hostlist_shift(hostlist* list) {
  if (list->empty) return nullptr;
  list->empty = true;
  return strdup(list->name.c_str());
}
void slurm_hostlist_destroy(hostlist* list) { delete list; }
void slurm_packmem(void* bytes, std::uint32_t size, buf_t* buffer) {
  const std::uint32_t sent = htonl(size);
  std::memcpy(buffer->head + buffer->processed, &sent, sizeof sent);
  std::memcpy(buffer->head + buffer->processed + sizeof sent, bytes, size);
  buffer->processed += static_cast<std::uint32_t>(sizeof sent) + size;
}
int slurm_unpackmem_xmalloc(char** bytes, std::uint32_t* size, buf_t* buffer) {
  std::uint32_t sent = 0;
  if (buffer->size - buffer->processed < sizeof sent) return -1;
  std::memcpy(&sent, buffer->head + buffer->processed, sizeof sent);
  buffer->processed += static_cast<std::uint32_t>(sizeof sent);
  *size = ntohl(sent);
  if (buffer->size - buffer->processed < *size) return -1;
  *bytes = static_cast<char*>(std::malloc(*size + 1));
  std::memcpy(*bytes, buffer->head + buffer->processed, *size);
  buffer->processed += *size;
  return 0;
}
void slurm_xfree(void** block) {
  std::free(*block);
  *block = nullptr;
}
std::int64_t slurm_bit_size(bitstr_t* bits) { return static_cast<std::int64_t>(bits->bits.size()); }
int slurm_bit_test(bitstr_t* bits, std::int64_t bit) { return bits->bits.at(static_cast<std::size_t>(bit)); }
int slurm_env_array_overwrite(char***, const char* name, const char* value) {
  environment[name] = value;
  return 1;
}
void slurm_unsetenvp(char**, const char* name) { environment.erase(name); }
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

// The data from slurmd, positioned at its beginning.
struct Buffer {
  char bytes[4096] = {};
  buf_t slurms = {BUF_MAGIC, bytes, sizeof bytes, 0};
  Buffer() = default;
  explicit Buffer(std::string block) {
    slurm_packmem(block.data(), static_cast<std::uint32_t>(block.size()), &slurms);
    rewind();
  }
  void rewind() {
    slurms.size = slurms.processed;
    slurms.processed = 0;
  }
};

std::uint64_t units_of(list_t records) {
  REQUIRE(gres_p_node_config_load(&records, nullptr) == 0);
  std::uint64_t units = 0;
  SharedGpuOffer offer = {};
  for (std::size_t i = 0; sharedgpu_offer(i, &offer); ++i) units += offer.units;
  return units;
}

node_config_load_t in_slurmd() {
  node_config_load_t node = {};
  node.in_slurmd = true;
  return node;
}

TEST_CASE("Records of sharedgpu are added up") {
  char name[] = "sharedgpu";
  char other[] = "gpu";
  auto one = record(name, 8, kNumber);
  auto two = record(name, 4, kNumber);
  auto gpu = record(other, 2, 7);
  CHECK(units_of({{&one, &gpu, &two}}) == 12);
}

TEST_CASE("A record whose last member is not the number of its name is ignored") {
  // In an unknown layout, the pointer read as the name may have any value, so the plugin must not follow it.
  auto* wild = reinterpret_cast<char*>(std::uintptr_t{8});
  auto strange = record(wild, 8, 0);
  CHECK(units_of({{&strange}}) == 0);
}

TEST_CASE("The other records of an unknown layout are not read either") {
  auto strange = record(reinterpret_cast<char*>(std::uintptr_t{8}), 8, 0);
  strange.file = reinterpret_cast<char*>(std::uintptr_t{8});
  CHECK(units_of({{&strange}}) == 0);
}

TEST_CASE("Slurm numbers the units, as it numbers units with files") {
  char name[] = "sharedgpu";
  auto ours = record(name, 8, kNumber);
  CHECK(units_of({{&ours}}) == 8);
  CHECK((ours.config_flags & GRES_CONF_HAS_FILE) != 0);
}

TEST_CASE("More units than Slurm can number are not offered") {
  char name[] = "sharedgpu";
  auto ours = record(name, 1024, kNumber);
  CHECK(units_of({{&ours}}) == 1024);
  ours.count = 1025;
  const int before = errors;
  CHECK(units_of({{&ours}}) == 0);
  CHECK(ours.count == 0);
  CHECK(errors == before + 1);
}

TEST_CASE("Each unit opens the file of its record in slurmstepd, as slurmd has sent it") {
  char name[] = "sharedgpu";
  char zero[] = "/dev/zero";
  char full[] = "/dev/full";
  char first_type[] = "a";
  char second_type[] = "b";
  auto first = record(name, 2, kNumber);
  first.file = zero;
  first.type_name = first_type;
  auto second = record(name, 1, kNumber);
  second.file = full;
  second.type_name = second_type;
  list_t records = {{&first, &second}};
  auto node = in_slurmd();
  REQUIRE(gres_p_node_config_load(&records, &node) == 0);
  Buffer buffer;
  gres_p_send_stepd(&buffer.slurms);
  buffer.rewind();
  gres_p_recv_stepd(&buffer.slurms);
  CHECK(buffer.slurms.processed == buffer.slurms.size);
  list_t* list = gres_p_get_devices();
  REQUIRE(list->items.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto& device = *static_cast<gres_device_t*>(list->items[i]);
    CHECK(device.index == static_cast<int>(i));
    CHECK(std::string(device.path) == (i < 2 ? zero : full));
    CHECK(device.dev_desc.major == 1);
    CHECK(device.dev_desc.minor == (i < 2 ? 5 : 7));
    CHECK(device.dev_desc.type == 2);
  }
  fini();
}

TEST_CASE("A step gets its units and the numbers of the GPUs of these units") {
  Buffer sent(
      "sharedgpu\ntype 0 2 a100\ntype 2 2 h100\n0 2 195 3 /dev/nvidia3\n0 2 195 0 /dev/nvidia0\n2 2 195 1 "
      "/dev/nvidia1\n");
  gres_p_recv_stepd(&sent.slurms);
  char* nothing = nullptr;
  char** variables = &nothing;
  environment["SHAREDGPU_UNITS"] = environment["SHAREDGPU_DEVICES"] = environment["SHAREDGPU_UNIT_TYPES"] =
      "the user's";
  bitstr_t one = {{false, true, false, false}};
  gres_p_step_set_env(&variables, &one, 1, 0);
  CHECK(environment["SHAREDGPU_UNITS"] == "1");
  CHECK(environment["SHAREDGPU_DEVICES"] == "0,3");
  CHECK(environment["SHAREDGPU_UNIT_TYPES"] == "a100:1");
  bitstr_t both = {{false, true, true}};  // the bitmap of a job that started when the node had fewer units
  gres_p_job_set_env(&variables, &both, 2, 0);
  CHECK(environment["SHAREDGPU_DEVICES"] == "0,1,3");
  CHECK(environment["SHAREDGPU_UNIT_TYPES"] == "a100:1,h100:1");
  const int before = errors;
  gres_p_step_set_env(&variables, nullptr, 1, 0);  // Slurm did not number the units
  gres_p_step_set_env(&variables, nullptr, 1, 0);
  CHECK(errors == before + 1);
  CHECK(environment.count("SHAREDGPU_DEVICES") == 0);
  CHECK(environment.count("SHAREDGPU_UNIT_TYPES") == 0);
  CHECK(environment["SHAREDGPU_UNITS"] == "1");
  gres_p_step_set_env(&variables, &one, 0, 0);
  CHECK(environment.empty());
}

TEST_CASE("A file of another GRES makes a node offer nothing") {
  char name[] = "sharedgpu";
  char other[] = "gpu";
  char file[] = "/dev/zero";
  auto ours = record(name, 8, kNumber);
  auto gpu = record(other, 1, 7);
  ours.file = gpu.file = file;
  const int before = errors;
  CHECK(units_of({{&gpu, &ours}}) == 0);
  CHECK(ours.count == 0);
  CHECK(gpu.count == 1);
  CHECK(errors == before + 1);
}

TEST_CASE("slurmstepd leaves a buffer of another plugin unread, and continues") {
  const int before = errors;
  Buffer strange("gpu: something else");
  gres_p_recv_stepd(&strange.slurms);
  CHECK(strange.slurms.processed == 0);
  Buffer empty;
  empty.rewind();
  gres_p_recv_stepd(&empty.slurms);
  CHECK(empty.slurms.processed == 0);
  Buffer torn("sharedgpu\n0 2 195 3 /dev/nvidia3\n");
  torn.slurms.size -= 5;
  gres_p_recv_stepd(&torn.slurms);
  CHECK(errors == before + 3);
  REQUIRE(gres_p_get_devices() != nullptr);
  fini();
}

TEST_CASE("No records") {
  CHECK(units_of({}) == 0);
  CHECK(gres_p_node_config_load(nullptr, nullptr) == 0);
}

}  // namespace
