// SPDX-License-Identifier: Apache-2.0
// The report, computed from output of sacct of Slurm 22.05. The names are changed, and the last four jobs are
// invented.
#include "arbiter/cli/site_report.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

constexpr char kPrinted[] =
    R"(7|alice|physics|main|2026-11-22T12:47:12|12|billing=1,cpu=1,gres/sharedgpu=1,mem=4G,node=1||
7.batch||physics||2026-11-22T12:47:12|12|cpu=1,gres/sharedgpu=1,mem=4G,node=1|cpu=00:00:02,energy=0,fs/disk=5,gres/sharedgpu_lease=5,gres/sharedgpu_swap=768,mem=4M,pages=0,vmem=9M|energy=0,fs/disk=0,gres/sharedgpu_lease=3,gres/sharedgpu_swap=960
8|alice|physics|main|2026-11-22T12:48:00|100|billing=2,cpu=2,gres/sharedgpu:h200=4,gres/sharedgpu=4,mem=8G,node=2||
8.batch||physics||2026-11-22T12:48:00|100|cpu=1,gres/sharedgpu=2,mem=4G,node=1|cpu=00:00:00,gres/sharedgpu_lease=0,gres/sharedgpu_swap=0|gres/sharedgpu_lease=0,gres/sharedgpu_swap=0
8.0||physics||2026-11-22T12:48:00|90|cpu=2,gres/sharedgpu=4,mem=8G,node=2|cpu=00:00:09,gres/sharedgpu_lease=70,gres/sharedgpu_swap=64|gres/sharedgpu_lease=20,gres/sharedgpu_swap=0
9|bob|chemistry|main|2026-11-22T12:48:30|50|billing=1,cpu=1,mem=4G,node=1||
9.batch||chemistry||2026-11-22T12:48:30|50|cpu=1,mem=4G,node=1|cpu=00:00:01|cpu=00:00:00
10|bob|chemistry|main|Unknown|40|billing=1,cpu=1,gres/sharedgpu=1,mem=4G,node=1||
10.batch||chemistry||Unknown|40|cpu=1,gres/sharedgpu=1,mem=4G,node=1||
11|bob|chemistry|main|2026-12-01T00:00:00|30|billing=1,cpu=1,gres/sharedgpu=1,mem=4G,node=1||
11.batch||chemistry||2026-12-01T00:00:00|30|cpu=1,gres/sharedgpu=1,mem=4G,node=1|gres/sharedgpu_lease=30|gres/sharedgpu_lease=0
12|bob|chemistry|main|2026-11-22T12:50:00|20|billing=1,cpu=1,gres/sharedgpu=2,mem=4G,node=1||
12.batch||chemistry||2026-11-22T12:50:00|20|cpu=1,gres/sharedgpu=2,mem=4G,node=1|gres/sharedgpu_lease=18|gres/sharedgpu_lease=0
12|bob|chemistry|main|2026-11-22T12:55:00|10|billing=1,cpu=1,gres/sharedgpu=2,mem=4G,node=1||
12.batch||chemistry||2026-11-22T12:55:00|10|cpu=1,gres/sharedgpu=2,mem=4G,node=1|gres/sharedgpu_lease=9|gres/sharedgpu_lease=1)";

// A line with the delimiter of sacct's output. "|" stands for the delimiter, so that lines can be read.
std::string delimited(std::string line) {
  std::replace(line.begin(), line.end(), '|', kSacctDelimiter);
  return line;
}

SiteReport november() { return {"2026-11-01T00:00:00", "2026-12-01T00:00:00"}; }

TEST_CASE("Jobs with units are added up by user, account and partition") {
  SiteReport report = november();
  for (std::string_view line : split(kPrinted, '\n'))
    REQUIRE(report.add(delimited(std::string(line) + "|1||")));
  REQUIRE(report.sums().size() == 2);
  const SiteReport::Sums& alice =
      report.sums().at({.user = "alice", .account = "physics", .partition = "main"});
  CHECK(alice.jobs == 2);
  CHECK(alice.unit_seconds == 1 * 12 + 4 * 100);
  CHECK(alice.lease_seconds == 5 + 70);
  CHECK(alice.waited_seconds == 3 + 20);
  CHECK(alice.swap_mebibytes == 768 + 960 + 64);
  // The sums exclude a job without units, a running job and a job that ended after the period. A requeued job
  // counts with both runs.
  const SiteReport::Sums& bob =
      report.sums().at({.user = "bob", .account = "chemistry", .partition = "main"});
  CHECK(bob.jobs == 2);
  CHECK(bob.unit_seconds == 2 * 30);
  CHECK(bob.lease_seconds == 27);
  CHECK(bob.waited_seconds == 1);
}

TEST_CASE("A summary in the comment that includes all nodes of the job has precedence over the job's steps") {
  const std::string job = "7|a|b|c|2026-11-22T12:47:12|20|gres/sharedgpu=1|||2|";
  const auto told_in = [&](const std::string& admin, const std::string& system) {
    SiteReport report = november();
    REQUIRE(report.add(delimited(job) + admin + kSacctDelimiter + system));
    for (const char* step : {"7.0", "7.1"})
      REQUIRE(report.add(
          delimited(std::string(step) +
                    "|||||10||gres/sharedgpu_lease=10,gres/sharedgpu_swap=1|gres/sharedgpu_lease=1|2||")));
    CHECK(report.untold() == 0);
    return report.sums().begin()->second;
  };
  const auto told = [&](const std::string& admin) { return told_in(admin, "a|b"); };
  const SiteReport::Sums all =
      told(R"({"site": "a|b", "sharedgpu": {"version": 1, "nodes": ["n1", "n2"], "lease_seconds": 10.25,)"
           R"( "waiting_seconds": 0.5, "restored_bytes": 1048576, "evicted_bytes": 524288}})");
  CHECK(all.lease_seconds == 10.25);
  CHECK(all.waited_seconds == 0.5);
  CHECK(all.swap_mebibytes == 1.5);
  CHECK(all.jobs == 1);
  CHECK(told(R"(a text {"sharedgpu":{"version":1,"nodes":["n1","n2"],"lease_seconds":3}})").lease_seconds ==
        3);
  const std::string jobstats = "JS1:H4sIAADelIWcC/1WNQQqDMBBF7zLrtEzG0ZhcphQzqGBM0bgQyd0bUii4fe8";
  CHECK(told_in(jobstats, R"({"sharedgpu":{"version":1,"nodes":["n1","n2"],"lease_seconds":7}})")
            .lease_seconds == 7);
  CHECK(told_in(jobstats, R"(burst | {"sharedgpu":{"version":1,"nodes":["n1","n2"],"lease_seconds":8}})")
            .lease_seconds == 8);
  for (const char* comment :
       {"", "text", "{}", R"({"sharedgpu": 1})", R"({"sharedgpu": {"version": 1, "nodes": ["n1"]}})",
        R"({"sharedgpu": {"version": 2, "nodes": ["n1", "n2"], "lease_seconds": 1}})"}) {
    CAPTURE(comment);
    CHECK(told(comment).lease_seconds == 20);
    CHECK(told(comment).swap_mebibytes == 2);
  }
}

TEST_CASE("Jobs with units of which sacct has no lease time are counted") {
  SiteReport report = november();
  const std::string end = delimited("|a|b|c|2026-11-22T12:47:12|20|gres/sharedgpu=1|||1||");
  REQUIRE(report.add("7" + end));
  REQUIRE(report.add(delimited("7.batch|||||10||cpu=1||1||")));
  REQUIRE(report.add("8" + end));
  REQUIRE(report.add(delimited("8.batch|||||10||gres/sharedgpu_lease=0||1||")));
  REQUIRE(report.add("9" + end));
  CHECK(report.untold() == 2);
}

TEST_CASE("A line that is not from sacct is rejected") {
  SiteReport report = november();
  CHECK_FALSE(report.add("slurm_load_jobs error"));
  CHECK_FALSE(report.add(delimited("x|a|b|c|d|1|e|f|g|1||")));
  CHECK_FALSE(report.add(delimited("7|a|b|c|2026-11-22T12:47:12|long|gres/sharedgpu=1|||1||")));
  CHECK(report.add(delimited("7.0|||||1||gres/sharedgpu_lease=5||1||")));  // a step whose job has no line
  CHECK(report.sums().empty());
}

}  // namespace
}  // namespace sharedgpu::cli
