// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/terms.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

const GpuUuid kFirst{{1}};
const GpuUuid kSecond{{2}};

Settings settings(const std::string& text) {
  Settings settings;
  REQUIRE(parse_settings(text, "x.conf", settings) == "");
  return settings;
}

JobClass job_class(std::string_view partition, std::string_view qos = {}) {
  JobClass job;
  partition.copy(job.partition, JobClass::kLongest);
  qos.copy(job.qos, JobClass::kLongest);
  return job;
}

TEST_CASE("A job's priority is the sum of the priority of its QOS or partition and its own, within bounds") {
  const Settings node = settings(
      "MaxPriority=10\n[qos high]\nPriority=100\n[qos urgent]\nPriority=1000\nMaxPriority=1000\n"
      "[partition low]\nPriority=-20\n");
  TenantInfo job;
  job.name.job = 7;
  const auto priority = [&](const JobClass& of, std::int32_t stated) {
    job.job_class = of;
    job.options.priority = stated;
    return claims_of(job, node).priority;
  };
  CHECK(priority({}, 0) == 0);
  CHECK(priority({}, 50) == 10);
  CHECK(priority(job_class("any", "high"), 0) == 100);
  CHECK(priority(job_class("any", "high"), 50) == 110);
  CHECK(priority(job_class("any", "high"), -50) == 50);
  CHECK(priority(job_class("low"), 3) == -17);
  CHECK(priority(job_class("low", "high"), 3) == 103);
  CHECK(priority(job_class("any", "urgent"), 900) == kHighestPriority);
  CHECK(excessive_requests(job, node).empty());
  priority(job_class("any", "high"), 50);
  CHECK(excessive_requests(job, node) ==
        std::vector<std::string>{"asks for priority 50, but gets only MaxPriority"});

  job.name = {};
  job.name.process.pid = 7;
  CHECK(priority({}, 5) == 0);
  CHECK(priority({}, -5) == -5);
}

TEST_CASE("The units of a tenant bring what SwapPerUnit states for each") {
  TenantInfo job;
  job.name.job = 7;
  job.options.units = 3;
  const auto memory = [&](const char* text) { return units_memory(job, settings(text), gibibytes(80)); };
  CHECK(memory("") == Bytes{});
  CHECK(memory("SwapPerUnit=unlimited\n") == Bytes{});
  CHECK(memory("SwapPerUnit=2GiB\n") == gibibytes(6));
  SECTION("auto is the share of a unit in the memory of the GPU, which GpuMemory may state") {
    CHECK(memory("SwapPerUnit=auto\n") == gibibytes(30));
    CHECK(memory("SwapPerUnit=auto\nUnitsPerGpu=16\n") == gibibytes(15));
    CHECK(memory("SwapPerUnit=auto\nGpuMemory=24GiB\n") == gibibytes(9));
    CHECK(memory("SwapPerUnit=auto\nDeviceMemoryLimit=8GiB\n") == gibibytes(30));
    CHECK(memory("SwapPerUnit=auto\nGpuMemory=h200:160GiB\n") == gibibytes(60));
  }
  SECTION("units of unknown types bring the largest size") {
    CHECK(memory("SwapPerUnit=1GiB,large:3GiB\n") == gibibytes(9));
  }
  SECTION("a tenant keeps what its units have brought") {
    for (const char* since : {"SwapPerUnit=1GiB,large:3GiB\n", "SwapPerUnit=auto\n", "SwapPerUnit=2GiB\n",
                              "SwapPerUnit=unlimited\n"}) {
      job.brought = gibibytes(5);
      CHECK(memory(since) == gibibytes(5));
      job.brought = RegisterJob::kUnlimited;
      CHECK(memory(since) == Bytes{});
    }
  }
  SECTION("sizes whose sum no memory has are unlimited") {
    job.options.units = 5000;
    CHECK(memory("SwapPerUnit=1000TiB\n") == Bytes{});
    job.options.units = 4000;
    CHECK(memory("SwapPerUnit=1000TiB\n") == Bytes{4'000'000ull << 40});
  }
  SECTION("units for which nobody vouches count as one") {
    job.options.units = 0;
    CHECK(memory("SwapPerUnit=2GiB\n") == gibibytes(2));
  }
  SECTION("no memory of the native backend is swapped") {
    job.options.backend_given = 1;
    job.options.backend = Backend::native;
    CHECK(memory("SwapPerUnit=2GiB\n") == Bytes{});
  }
}

TEST_CASE("The host memory of units is known when they are registered, unless it depends on the GPU") {
  TenantInfo job;
  job.options.units = 3;
  const auto brought = [&](const char* text) { return brought_now(job, settings(text)); };
  CHECK(brought("SwapPerUnit=unlimited\n") == RegisterJob::kUnlimited);
  CHECK(brought("SwapPerUnit=2GiB\n") == gibibytes(6));
  CHECK(brought("SwapPerUnit=1GiB,large:3GiB\n") == gibibytes(9));
  CHECK(brought("SwapPerUnit=auto\nGpuMemory=24GiB\n") == gibibytes(9));
  CHECK(brought("SwapPerUnit=auto\n") == Bytes{});
  CHECK(brought("SwapPerUnit=1GiB,large:auto\n") == Bytes{});
}

TEST_CASE("A negative MaxPriority also limits tenants that are no jobs") {
  const Settings node = settings("MaxPriority=-10\n");
  TenantInfo tenant;
  tenant.name.job = 7;
  CHECK(claims_of(tenant, node).priority == -10);
  tenant.name = {};
  tenant.name.process.pid = 7;
  CHECK(claims_of(tenant, node).priority == -10);
  tenant.options.priority = -20;
  CHECK(claims_of(tenant, node).priority == -20);
}

TEST_CASE(
    "A step states the options that no earlier step has stated, and the batch step states all options") {
  RegisterJob step;
  step.step = {.job = 7, .step = 0};
  step.options.units = 2;
  step.options.priority = -5;
  step.options.share_request = 30;
  step.options.share_limit = 60;
  step.options.deadline = 33ms;
  step.options.memory = mebibytes(64);
  JobOptions job;
  job.units = 1;
  const JobOptions stated = merged(job, step);
  CHECK(stated.units == 2);
  CHECK(stated.priority == -5);
  CHECK(stated.share_request == 30);
  CHECK(stated.share_limit == 60);
  CHECK(stated.deadline == 33ms);
  CHECK(stated.memory == mebibytes(64));

  RegisterJob next;
  next.step = {.job = 7, .step = 1};
  next.options.units = 1;
  next.options.priority = 9;
  next.options.share_request = 1;
  next.options.deadline = 1s;
  next.options.memory = mebibytes(1);
  const JobOptions same = merged(stated, next);
  CHECK(same.units == 2);
  CHECK(same.priority == -5);
  CHECK(same.share_request == 30);
  CHECK(same.share_limit == 60);
  CHECK(same.deadline == 33ms);
  CHECK(same.memory == mebibytes(64));

  next.step.step = kBatchStep;
  CHECK(merged(stated, next).share_request == 1);
  CHECK(merged(stated, next).share_limit == 0);
}

TEST_CASE("A QOS limits what its jobs may request") {
  const Settings node = settings("[qos free]\nMaxRequest=10%\n");
  TenantInfo job;
  job.name.job = 7;
  job.options.share_request = 40;
  CHECK(claims_of(job, node).request == Approx(0.4));
  job.job_class = job_class("", "free");
  CHECK(claims_of(job, node).request == Approx(0.1));
  CHECK(excessive_requests(job, node) ==
        std::vector<std::string>{"asks for a share of 40%, but gets only MaxRequest"});
  job.options.share_request = 0;
  job.options.units = 4;
  CHECK(claims_of(job, node).request == Approx(0.1));
}

struct NodeOfTerms {
  Snapshot state;
  Tenants tenants;

  NodeOfTerms() {
    state.gpus.resize(2);
    state.gpus[0].uuid = kFirst;
    state.gpus[1].uuid = kSecond;
    state.gpus[1].number = 1;
  }
  TenantId job(std::uint32_t number, std::string_view partition) {
    TenantInfo& info = tenants.get({.job = number, .run = {}, .process = {}}, 0);
    info.job_class = job_class(partition);
    return info.id;
  }
  void place(TenantId tenant, const GpuUuid& gpu) { state.placements[tenant] = {.units = 1, .gpus = {gpu}}; }
  void use(TenantId tenant, const GpuUuid& gpu) {
    Snapshot::Session& session = state.sessions.emplace_back();
    session.id = SessionId{state.sessions.size()};
    session.tenant = tenant;
    session.gpu = gpu;
  }
};

TEST_CASE("A partition's rules apply on a GPU if all tenants of the GPU are the partition's jobs") {
  const Settings node = settings("Policy=credit\n[partition debug]\nPolicy=priority\n[gpu 1]\nQuantum=3s\n");
  NodeOfTerms host;
  const auto policy_on = [&](const GpuUuid& gpu) {
    const RulesSet rules = rules_of(host.state, node, partitions_of(host.state, host.tenants));
    return rules.own.at(gpu).policy->name();
  };
  CHECK(policy_on(kFirst) == "credit");
  host.place(host.job(1, "debug"), kFirst);
  CHECK(policy_on(kFirst) == "priority");
  CHECK(policy_on(kSecond) == "credit");
  host.use(host.job(2, "debug"), kFirst);
  CHECK(policy_on(kFirst) == "priority");
  SECTION("another's job comes") {
    host.place(host.job(3, "long"), kFirst);
    CHECK(policy_on(kFirst) == "credit");
  }
  SECTION("a process comes of which nothing is known") {
    host.use(host.job(3, ""), kFirst);
    CHECK(policy_on(kFirst) == "credit");
  }
  SECTION("on another GPU what is said of that holds as well") {
    host.use(host.job(3, "debug"), kSecond);
    const RulesSet rules = rules_of(host.state, node, partitions_of(host.state, host.tenants));
    CHECK(rules.own.at(kSecond).policy->name() == "priority");
    CHECK(rules.own.at(kSecond).turns.fixed == 3s);
    CHECK(rules.own.at(kFirst).turns.fixed == 0s);
    CHECK(rules.node.policy->name() == "credit");
  }
}

TEST_CASE("Without sections no GPU has rules of its own") {
  NodeOfTerms host;
  CHECK(rules_of(host.state, settings("Policy=credit\n"), {}).own.empty());
}

TEST_CASE("A job is counted on each of the GPUs that it is placed on, and processes are of no partition") {
  NodeOfTerms host;
  const TenantId job = host.job(1, "debug");
  host.state.placements[job] = {.units = 1, .gpus = {kFirst, kSecond}};
  CHECK(partitions_of(host.state, host.tenants) == Partitions{{kFirst, "debug"}, {kSecond, "debug"}});
  host.state.placements.clear();
  host.place(host.job(2, ""), kFirst);
  host.place(TenantId{99}, kSecond);  // host.tenants has no such tenant
  CHECK(partitions_of(host.state, host.tenants).empty());
  host.state.sessions.emplace_back().tenant = job;  // the session has no GPU yet
  CHECK(partitions_of(host.state, host.tenants).empty());
}

}  // namespace
}  // namespace sharedgpu
