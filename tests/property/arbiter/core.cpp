// SPDX-License-Identifier: Apache-2.0
// The core with random programs, in the simulation of world.h. World checks at every step that no memory is
// promised twice, and that a gate is open only if the session has a lease and its memory. It also checks that
// no tenant starves, and that each lease in the ledger begins and ends once. At the end, World checks that
// the core has no state left.
#include <rapidcheck.h>
#include <array>
#include <catch2/catch.hpp>

#include "world.h"

namespace sharedgpu::test {
namespace {

Scenario any_scenario() {
  Scenario scenario;
  scenario.seed = *rc::gen::arbitrary<std::uint64_t>();
  scenario.tenants = *rc::gen::inRange(1u, 7u);
  scenario.most_sessions = *rc::gen::inRange(1u, 4u);
  scenario.largest_growth = *rc::gen::inRange(2u, 60u);
  if (*rc::gen::arbitrary<bool>())
    scenario.turns = {.fixed = {}, .max_overhead = 0.05, .max_wait = std::chrono::seconds(2)};
  scenario.length = std::chrono::seconds(*rc::gen::inRange(10, 60));
  return scenario;
}

bool holds(const std::string& name, const std::function<Scenario()>& make) {
  return rc::check(name, [&] {
    World world(make());
    world.run();
  });
}

Scenario any_loss() {
  Scenario scenario = any_scenario();
  scenario.losses = true;
  scenario.gpus = *rc::gen::inRange(2u, 5u);
  scenario.deaths = *rc::gen::arbitrary<bool>();
  scenario.restarts = *rc::gen::inRange(0u, 4u);
  scenario.pins = scenario.restarts == 0 && *rc::gen::arbitrary<bool>();
  scenario.lockstep = *rc::gen::arbitrary<bool>();
  scenario.stops = *rc::gen::arbitrary<bool>();
  return scenario;
}

TEST_CASE("GPUs that fail, are lost, return and are drained") { CHECK(holds("losses", any_loss)); }

TEST_CASE(
    "A thousand changes of GPUs, with deaths and restarts: nothing is lost, nobody is where he may not be") {
  World::Tally all;
  for (std::uint64_t seed = 0; all.gpu_changes < 1000; ++seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.gpus = 2 + static_cast<unsigned>(seed % 3);
    scenario.tenants = 6;
    scenario.most_sessions = 3;
    scenario.losses = scenario.deaths = true;
    scenario.restarts = 3;
    World world(scenario);
    world.run();
    all.gpu_changes += world.tally().gpu_changes;
    all.lost_sessions += world.tally().lost_sessions;
    all.displaced += world.tally().displaced;
    all.kernels += world.tally().kernels;
  }
  CHECK(all.lost_sessions > 100);
  CHECK(all.displaced > 20);
  CHECK(all.kernels > 1000);
}

TEST_CASE("Programs that come, grow, compute and end") { CHECK(holds("plain", any_scenario)); }

TEST_CASE("Programs that are larger than the GPU") {
  CHECK(holds("oversize", [] {
    Scenario scenario = any_scenario();
    scenario.oversize = true;
    scenario.host_cap = *rc::gen::inRange(0u, 2u) * *rc::gen::inRange(20u, 300u);
    scenario.host_limit = *rc::gen::inRange(0u, 2u) * *rc::gen::inRange(20u, 300u);
    scenario.job_host_limit = *rc::gen::inRange(0u, 2u) * *rc::gen::inRange(20u, 300u);
    scenario.restarts = *rc::gen::inRange(0u, 3u);
    scenario.queries = true;
    scenario.deaths = *rc::gen::arbitrary<bool>();
    scenario.pins = scenario.restarts == 0 && *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("The worlds of programs that are larger than the GPU are lively") {
  Scenario scenario;
  scenario.oversize = true;
  scenario.job_host_limit = 200;
  scenario.largest_growth = 60;
  World world(scenario);
  world.run();
  CHECK(world.tally().away > 50);
  CHECK(world.tally().kept_home > 20);
  CHECK(world.tally().moved_in > 20);
  CHECK(world.tally().kernels > 500);
}

TEST_CASE("Processes that die at any moment") {
  CHECK(holds("deaths", [] {
    Scenario scenario = any_scenario();
    scenario.deaths = true;
    return scenario;
  }));
}

// Each tenant that obeys no order may prolong a round by the sum of three delays: 10 s while it enters, 5 s
// while it leaves, and the time in which its processes end. No other tenant enters during these 10 s.
TEST_CASE("Tenants that obey no order delay other tenants for a bounded time") {
  CHECK(holds("mutes", [] {
    Scenario scenario = any_scenario();
    scenario.mutes = *rc::gen::inRange(1u, 4u);
    scenario.gpus = *rc::gen::inRange(1u, 3u);
    scenario.patience = scenario.mutes * std::chrono::seconds(27);
    scenario.length = std::chrono::seconds(*rc::gen::inRange(60, 120));
    return scenario;
  }));
}

TEST_CASE("Tenants that obey no order are given up or ended, and the other tenants continue") {
  Scenario scenario;
  scenario.mutes = 2;
  scenario.largest_growth = 60;
  World world(scenario);
  world.run();
  CHECK(world.tally().given_up > 0);
  CHECK(world.tally().cancelled > 0);
  CHECK(world.tally().kernels > 500);
}

TEST_CASE("Memory that cannot be swapped") {
  CHECK(holds("pins", [] {
    Scenario scenario = any_scenario();
    scenario.pins = true;
    scenario.deaths = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("A tenant on several GPUs holds all of them or none") {
  CHECK(holds("gpus", [] {
    Scenario scenario = any_scenario();
    scenario.gpus = *rc::gen::inRange(2u, 4u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Evictions that fail") {
  CHECK(holds("stuck", [] {
    Scenario scenario = any_scenario();
    scenario.host_runs_out = true;
    scenario.deaths = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Host memory that is bounded, and that programs need for themselves") {
  CHECK(holds("host", [] {
    Scenario scenario = any_scenario();
    const auto bound = [] { return *rc::gen::arbitrary<bool>() ? *rc::gen::inRange(20u, 150u) : 0u; };
    scenario.host_short = *rc::gen::arbitrary<bool>();
    scenario.host_cap = bound();
    scenario.host_limit = bound();
    scenario.job_host_limit = bound();
    scenario.deaths = *rc::gen::arbitrary<bool>();
    scenario.pins = *rc::gen::arbitrary<bool>();
    scenario.restarts = *rc::gen::inRange(0u, 3u);
    return scenario;
  }));
}

TEST_CASE("Growth waits for host memory, and evicted memory returns to the GPU") {
  Scenario scenario;
  scenario.tenants = 3;
  scenario.largest_growth = 40;
  scenario.host_short = true;
  scenario.host_cap = 70;
  World world(scenario);
  world.run();
  CHECK(world.tally().home > 0);
  CHECK(world.tally().host_refusals > 0);
  CHECK(world.tally().host_waits > 0);
}

// Some estimates of the core fall as time passes, and the core arms no timer for them. So in a few
// simulations the core makes a decision late, at the next event. If the core armed no timer for another kind
// of decision, decisions would be late in many simulations.
TEST_CASE("A decision that depends on time alone has a timer") {
  constexpr std::array kExact{"round-robin", "fcfs", "shortest-first", "credit", "priority"};
  constexpr unsigned kWorlds = 300;
  constexpr unsigned kFew = 4;
  unsigned late = 0;
  for (unsigned i = 0; i < kWorlds; ++i) {
    Scenario scenario;
    scenario.seed = i;
    scenario.tenants = 2 + i % 5;
    scenario.policy = kExact[i % kExact.size()];
    scenario.gpus = 1 + i % 7 / 3;
    scenario.largest_growth = 5 + i % 50;
    scenario.claims = i % 3 == 0;
    scenario.deaths = i % 4 == 0;
    scenario.stops = i % 11 == 0;
    scenario.host_runs_out = i % 13 == 0;
    scenario.entangled = i % 17 == 0;
    scenario.restarts = i % 6 == 0 ? 1 : 0;
    scenario.length = std::chrono::seconds(20);
    scenario.early_advances = true;
    scenario.checked = false;
    try {
      World(scenario).run();
    } catch (const std::logic_error& error) {
      UNSCOPED_INFO(error.what());
      ++late;
    }
  }
  CHECK(late <= kFew);
}

TEST_CASE("Surveys take nothing from sessions whose reports are true") {
  CHECK(holds("surveys", [] {
    Scenario scenario = any_scenario();
    scenario.surveys = true;
    scenario.gpus = *rc::gen::inRange(1u, 3u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    scenario.pins = *rc::gen::arbitrary<bool>();
    scenario.stops = *rc::gen::arbitrary<bool>();
    scenario.restarts = scenario.pins ? 0u : *rc::gen::inRange(0u, 3u);
    return scenario;
  }));
}

TEST_CASE("Arbiters that die") {
  CHECK(holds("restarts", [] {
    Scenario scenario = any_scenario();
    scenario.restarts = *rc::gen::inRange(1u, 5u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Processes that wait for each other") {
  CHECK(holds("lockstep", [] {
    Scenario scenario = any_scenario();
    scenario.lockstep = true;
    scenario.gpus = *rc::gen::inRange(1u, 3u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Turns that end during captures, or while work waits for the next submission") {
  CHECK(holds("entangled", [] {
    Scenario scenario = any_scenario();
    scenario.entangled = true;
    scenario.gpus = *rc::gen::inRange(1u, 3u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    scenario.pins = *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Processes that are stopped and resumed") {
  CHECK(holds("stops", [] {
    Scenario scenario = any_scenario();
    scenario.stops = true;
    scenario.gpus = *rc::gen::inRange(1u, 3u);
    scenario.deaths = *rc::gen::arbitrary<bool>();
    scenario.restarts = *rc::gen::arbitrary<bool>() ? *rc::gen::inRange(1u, 4u) : 0u;
    scenario.pins = scenario.restarts == 0 && *rc::gen::arbitrary<bool>();
    scenario.entangled = *rc::gen::arbitrary<bool>();
    scenario.lockstep = !scenario.entangled && *rc::gen::arbitrary<bool>();
    return scenario;
  }));
}

TEST_CASE("Leases are taken from stopped processes") {
  unsigned taken = 0;
  unsigned late_work = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.tenants = 3;
    scenario.largest_growth = 40;
    scenario.stops = true;
    World world(scenario);
    world.run();
    taken += world.tally().taken;
    late_work += world.tally().late_work;
  }
  CHECK(taken > 5);
  CHECK(late_work > 0);
}

TEST_CASE("Sessions whose turn is ending get memory") {
  Scenario scenario;
  scenario.tenants = 3;
  scenario.largest_growth = 40;
  scenario.entangled = true;
  World world(scenario);
  world.run();
  CHECK(world.tally().turns > 5);
  CHECK(world.tally().late > 5);
}

TEST_CASE("Steps are taken") {
  std::uint64_t turns = 0;
  std::uint64_t steps = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    Scenario scenario;
    scenario.seed = seed;
    scenario.tenants = 3;
    scenario.most_sessions = 4;
    scenario.largest_growth = 40;
    scenario.lockstep = true;
    World world(scenario);
    world.run();
    turns += world.tally().turns;
    steps += world.tally().steps;
  }
  CHECK(turns > 50);
  CHECK(steps > 50);
}

TEST_CASE("The worlds are lively") {
  Scenario scenario;
  scenario.tenants = 4;
  scenario.largest_growth = 40;
  World world(scenario);
  world.run();
  CHECK(world.tally().turns > 20);
  CHECK(world.tally().evictions > 20);
  CHECK(world.tally().kernels > 100);
}

}  // namespace
}  // namespace sharedgpu::test
