// SPDX-License-Identifier: Apache-2.0
#include "simulation/cluster_scenario.h"

#include <algorithm>
#include <random>

namespace sharedgpu::simulation {

using namespace std::chrono_literals;

ClusterScenario random_cluster(std::uint64_t seed, unsigned nodes, unsigned outages) {
  std::mt19937_64 source(seed);
  const auto random = [&](unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(source);
  };
  ClusterScenario scenario;
  scenario.seed = seed;
  scenario.nodes = nodes;
  std::vector<unsigned> all(nodes);
  for (unsigned node = 0; node < nodes; ++node) all[node] = node;
  const unsigned gangs = random(2, 2 + nodes / 2);
  const unsigned alone = random(0, nodes);
  for (unsigned job = 0; job < gangs + alone; ++job) {
    ClusterJob its;
    std::shuffle(all.begin(), all.end(), source);
    const unsigned spans = job < gangs ? random(2, std::max(2u, std::min(nodes, 4u))) : 1;
    its.nodes.assign(all.begin(), all.begin() + spans);
    its.footprint = mebibytes(random(20, 80));
    its.thinks = random(0, 8) * 1ms;
    its.computes = random(1, 20) * 1ms;
    its.ahead = random(1, 3);
    its.iterations = random(2000, 6000) / static_cast<unsigned>((its.thinks + its.computes) / 1ms);
    its.starts = random(0, 3000) * 1ms;
    if (random(0, 3) == 0) {
      its.grows_at = random(1, its.iterations - 1);
      its.growth = mebibytes(random(1, 20));
    }
    scenario.jobs.push_back(its);
  }
  for (unsigned outage = 0; outage < outages; ++outage) {
    Outage its;
    its.at = random(1000, 20000) * 1ms;
    its.lasts = random(10, 8000) * 1ms;
    its.node = random(0, nodes - 1);
    if (random(0, 1) == 0) its.peer = (its.node + random(1, nodes - 1)) % nodes;
    scenario.outages.push_back(its);
  }
  return scenario;
}

void add_restarts(ClusterScenario& scenario, unsigned restarts) {
  std::mt19937_64 source(scenario.seed);
  const auto random = [&](unsigned least, unsigned most) {
    return std::uniform_int_distribution<unsigned>(least, most)(source);
  };
  const std::vector<Outage> outages = scenario.outages;
  for (const Outage& link : outages) {
    if (!link.peer) continue;
    for (unsigned restart = 0; restart < restarts; ++restart)
      scenario.outages.push_back({.at = link.at + random(0, 40'000) * 1ms,
                                  .lasts = random(50, 3000) * 1ms,
                                  .node = random(0, 1) == 0 ? link.node : *link.peer,
                                  .peer = {}});
  }
}

Nanoseconds longest_wait(const ClusterScenario& scenario) {
  const Nanoseconds handoff = 2ms * static_cast<long>(scenario.capacity.count / scenario.copied_per_ms.count);
  return 2 * static_cast<long>(scenario.jobs.size()) * (scenario.turn + handoff + 500ms) + 10s;
}

}  // namespace sharedgpu::simulation
