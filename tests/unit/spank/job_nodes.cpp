// SPDX-License-Identifier: Apache-2.0
#include "spank/job_nodes.h"

#include <catch2/catch.hpp>
#include <map>

using namespace sharedgpu;

namespace {

constexpr std::uint32_t kJob = 12;

std::optional<JobNodes> nodes(std::uint32_t count, const char* first) {
  return JobNodes{.first = first, .count = count};
}

std::optional<JobNodes> nodes_in(const std::map<std::string, std::string>& environment) {
  return job_nodes(kJob, [&](const char* name) {
    const auto entry = environment.find(name);
    return entry == environment.end() ? std::string() : entry->second;
  });
}

}  // namespace

TEST_CASE("the first node of a list, and how many it has") {
  CHECK(parse_nodes("n1") == nodes(1, "n1"));
  CHECK(parse_nodes("gpu-node.site_a") == nodes(1, "gpu-node.site_a"));
  CHECK(parse_nodes("n[1-2]") == nodes(2, "n1"));
  CHECK(parse_nodes("n[01,03-04],m7") == nodes(4, "n01"));
  CHECK(parse_nodes("n[0098-0102]") == nodes(5, "n0098"));
  CHECK(parse_nodes("rack[0-1]node[0-3]") == nodes(8, "rack0node0"));
  CHECK(parse_nodes("a-b1,c") == nodes(2, "a-b1"));
  CHECK(parse_nodes("c,n[1-2]") == nodes(3, "c"));
  CHECK(parse_nodes("n[7]-ib") == nodes(1, "n7-ib"));
  CHECK(parse_nodes("n[7-7]") == nodes(1, "n7"));
  CHECK(parse_nodes("rack1node[3,5]") == nodes(2, "rack1node3"));
  CHECK(parse_nodes("[1-2]n") == nodes(2, "1n"));
}

TEST_CASE("a long list of nodes is accepted, and a name that is too long is rejected") {
  std::string list = "n0";
  for (int i = 2; i < 2000; i += 2) list += ",n" + std::to_string(i);
  CHECK(parse_nodes(list) == nodes(1000, "n0"));
  const std::string longest(199, 'n');
  CHECK(parse_nodes(longest) == nodes(1, longest.c_str()));
  CHECK_FALSE(parse_nodes(longest + "n"));
  CHECK_FALSE(parse_nodes("n," + longest + "n"));
}

TEST_CASE("a list of more nodes than a cluster has is rejected") {
  CHECK(parse_nodes("n[1-65533]") == nodes(65533, "n1"));
  CHECK(parse_nodes("n[0-255]x[0-254]") == nodes(65280, "n0x0"));
  for (const char* text :
       {"n[0-65533]", "n[1-65533],m", "n[1-65533,70000]", "n[0-255]x[0-255]", "n[0-18446744073709551615]",
        "n[0-999]x[0-999]x[0-999]x[0-999]x[0-999]x[0-999]x[0-999]"}) {
    INFO(text);
    CHECK_FALSE(parse_nodes(text));
  }
}

TEST_CASE("a text that is no list of nodes is rejected") {
  for (const char* text :
       {"",       ",",         "n1,",      ",n1",       "n1,,n2",     "n[",
        "n[1",    "n[1-2",     "n]",       "n1]",       "n[]",        "n[-]",
        "n[1-]",  "n[-2]",     "n[2-1]",   "n[1,]",     "n[,1]",      "n[1--2]",
        "n[a-b]", "n[1-2]]",   "n[[1-2]]", "n[1-2],m[", "n[1,2],m 7", "n[99999999999999999999]",
        "n[+1]",  "-n1",       "--help",   ".n",        "[",          "n 1",
        " n1",    "n1\n",      "n/1",      "n;1",       "n$1",        "n(1)",
        "(null)", "n\xc3\xa9", "n[1-2]x[3"}) {
    INFO(text);
    CHECK_FALSE(parse_nodes(text));
  }
  CHECK_FALSE(parse_nodes(std::string_view("n\0m", 3)));
}

TEST_CASE("a step on a part of the nodes reports all nodes of its job") {
  CHECK(nodes_in({{"SLURM_NODELIST", "n[1-3]"}, {"SLURM_JOB_NODELIST", "n[1-3]"}}) == nodes(3, "n1"));
  CHECK(nodes_in({{"SLURM_JOB_NODELIST", "n[2-3]"}, {"SLURM_NODELIST", "n[1-3]"}}) == nodes(3, "n1"));
  CHECK(nodes_in({{"SLURM_JOB_NODELIST", "n[1-3]"}}) == nodes(3, "n1"));
  CHECK(nodes_in({{"SLURM_NODELIST", "n3"}}) == nodes(1, "n3"));
  CHECK_FALSE(nodes_in({}));
  CHECK_FALSE(nodes_in({{"SLURM_NODELIST", "n["}}));
}

TEST_CASE("the components of a heterogeneous job have nodes of their own") {
  std::map<std::string, std::string> environment = {
      {"SLURM_NODELIST", "n[1-4]"},       {"SLURM_JOB_NODELIST", "n[1-4]"},
      {"SLURM_JOB_ID_HET_GROUP_0", "11"}, {"SLURM_JOB_NODELIST_HET_GROUP_0", "n1"},
      {"SLURM_JOB_ID_HET_GROUP_1", "12"}, {"SLURM_JOB_NODELIST_HET_GROUP_1", "n[2-4]"}};
  CHECK(nodes_in(environment) == nodes(3, "n2"));
  environment["SLURM_JOB_NODELIST_HET_GROUP_1"] = "n2";
  CHECK(nodes_in(environment) == nodes(1, "n2"));
  environment["SLURM_JOB_ID_HET_GROUP_0"] = "";
  environment["SLURM_JOB_ID_PACK_GROUP_0"] = "12";
  environment["SLURM_JOB_NODELIST_PACK_GROUP_0"] = "n[3-4]";
  CHECK(nodes_in(environment) == nodes(2, "n3"));
  environment["SLURM_JOB_ID_PACK_GROUP_0"] = "9";
  environment["SLURM_JOB_ID_HET_GROUP_0"] = "11";
  // The variable comes from another job that has submitted this job.
  environment["SLURM_JOB_ID_HET_GROUP_1"] = "10";
  CHECK(nodes_in(environment) == nodes(4, "n1"));
}
