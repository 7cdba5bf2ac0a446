// SPDX-License-Identifier: Apache-2.0
// Jobs that span nodes, on simulated clusters with random jobs that do not fit together. Each job must end,
// and may wait for a turn only as long as other jobs can delay it.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "simulation/cluster.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;
using simulation::ClusterResult;
using simulation::ClusterScenario;

ClusterScenario any_cluster(unsigned outages) {
  const unsigned nodes = *rc::gen::element(2u, 3u, 4u, 8u);
  return simulation::random_cluster(*rc::gen::arbitrary<std::uint64_t>(), nodes, outages);
}

TEST_CASE("Jobs that span nodes wait for each other no longer than the bound") {
  CHECK(rc::check("gangs", [] {
    const ClusterScenario scenario = any_cluster(0);
    const ClusterResult result = simulation::simulate(scenario);
    RC_ASSERT(result.all_ended());
    unsigned refused = 0;
    for (const ClusterResult::Job& job : result.jobs) {
      RC_ASSERT(job.longest_wait <= simulation::longest_wait(scenario));
      refused += job.refused ? 1 : 0;
    }
    // A request may be refused if two jobs begin at once, each with its memory on another node; see
    // docs/multi-node.md.
    RC_ASSERT(refused <= 1);
  }));
}

TEST_CASE("Outages of arbiters and links cause no deadlock") {
  CHECK(rc::check("outages", [] { RC_ASSERT(simulation::simulate(any_cluster(3)).all_ended()); }));
}

TEST_CASE("Arbiters that restart while a link of their node is down cause no deadlock") {
  CHECK(rc::check("restarts", [] {
    ClusterScenario scenario = any_cluster(2);
    for (simulation::Outage& outage : scenario.outages) outage.lasts *= *rc::gen::inRange(1, 20);
    simulation::add_restarts(scenario, 3);
    RC_ASSERT(simulation::simulate(scenario).all_ended());
  }));
}

TEST_CASE("Nodes that never reach each other cause no deadlock, whenever processes start") {
  CHECK(rc::check("cut for ever", [] {
    ClusterScenario scenario = any_cluster(0);
    const bool all = *rc::gen::arbitrary<bool>();
    for (unsigned node = 0; node < scenario.nodes; ++node)
      for (unsigned peer = node + 1; peer < scenario.nodes; ++peer)
        if (all || (node == 0 && peer == 1))
          scenario.outages.push_back({.at = {}, .lasts = 2 * scenario.limit, .node = node, .peer = peer});
    for (simulation::ClusterJob& job : scenario.jobs) job.spread = *rc::gen::inRange(1, 20'000) * 1ms;
    RC_ASSERT(simulation::simulate(scenario).all_ended());
  }));
}

TEST_CASE("A job that is suspended, on one of its nodes or on all, does not hinder other jobs") {
  CHECK(rc::check("suspensions", [] {
    ClusterScenario scenario = any_cluster(0);
    const auto job = *rc::gen::inRange<std::size_t>(0, scenario.jobs.size());
    simulation::Suspension its{
        .at = *rc::gen::inRange(1000, 10000) * 1ms, .lasts = 30min, .job = job, .member = {}};
    if (*rc::gen::arbitrary<bool>()) its.member = 0;
    scenario.suspensions = {its};
    scenario.limit = 29min;
    const ClusterResult result = simulation::simulate(scenario);
    for (std::size_t other = 0; other < result.jobs.size(); ++other)
      if (other != job) RC_ASSERT(result.jobs[other].took || result.jobs[other].refused);
    its.lasts = 5s;
    scenario.suspensions = {its};
    RC_ASSERT(simulation::simulate(scenario).all_ended());
  }));
}

TEST_CASE("The loss of a GPU of one process of a job does not hinder other jobs") {
  CHECK(rc::check("lost GPUs", [] {
    ClusterScenario scenario = any_cluster(0);
    scenario.lost_gpus = {
        {.at = *rc::gen::inRange(500, 15000) * 1ms, .node = *rc::gen::inRange(0u, scenario.nodes)}};
    RC_ASSERT(simulation::simulate(scenario).all_ended());
  }));
}

TEST_CASE("The same jobs lock each other where each node decides by itself") {
  unsigned locked = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    ClusterScenario scenario = simulation::random_cluster(seed, 2);
    scenario.limit = 200s;
    scenario.coordination = simulation::Coordination::none;
    locked += simulation::simulate(scenario).all_ended() ? 0 : 1;
  }
  CHECK(locked > 0);
}

// Jobs that conflict on every node can at best run one after the other.
TEST_CASE("Jobs on several nodes do nearly as much work as jobs on one node") {
  const unsigned nodes = GENERATE(2u, 4u, 8u);
  ClusterScenario spread, single;
  spread.nodes = nodes;
  for (unsigned job = 0; job < 3; ++job) {
    simulation::ClusterJob its;
    its.footprint = mebibytes(60);
    its.iterations = 3000;
    its.thinks = 1ms;
    its.computes = 5ms;
    its.ahead = 3;
    its.nodes = {0};
    single.jobs.push_back(its);
    for (unsigned node = 1; node < nodes; ++node) its.nodes.push_back(node);
    spread.jobs.push_back(its);
  }
  single.nodes = 1;
  const ClusterResult apart = simulation::simulate(spread);
  const ClusterResult together = simulation::simulate(single);
  REQUIRE(apart.all_ended());
  REQUIRE(together.all_ended());
  CHECK(static_cast<double>(together.took.count()) / static_cast<double>(apart.took.count()) >= 0.9);
}

TEST_CASE("All nodes of a job count the same lease time") {
  CHECK(rc::check("leases", [] {
    ClusterScenario scenario = any_cluster(0);
    const ClusterResult result = simulation::simulate(scenario);
    for (std::size_t job = 0; job < result.jobs.size(); ++job) {
      if (scenario.jobs[job].nodes.size() < 2 || result.jobs[job].refused) continue;
      Nanoseconds least = Nanoseconds::max(), most{};
      for (const auto& [node, lease] : result.jobs[job].lease) {
        least = std::min(least, lease);
        most = std::max(most, lease);
      }
      // The processes of a job start within 200 ms of each other, so their nodes count different lease times.
      RC_ASSERT(most - least <= 300ms + most / 20);
    }
  }));
}

}  // namespace
}  // namespace sharedgpu::test
