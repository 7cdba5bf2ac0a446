// SPDX-License-Identifier: Apache-2.0
// Honest tenants beside hostile tenants. In every simulation of this file:
//
//   - an honest client waits for its turn, or for the answer to an allocation, at most progress_bound()
//     (world_checks.cpp) plus the wait that the policy permits. The bound is the sum of a turn and a handoff
//     for each honest tenant, and of the delays that each hostile tenant can cause when it enters and leaves;
//   - an allocation of an honest tenant that fits beside the real memory of other tenants is granted;
//   - an event leads to at most 12 actions for each session and 12 more, without answers to requests;
//   - hostile clients get no more answers than they have sent requests;
//   - no survey disproves a report of an honest client, or shows more memory of the client than it may have;
//   - all invariants for honest clients in world_checks.cpp hold.
#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "protocol/policy_names.h"
#include "world.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr unsigned kKinds = 9;  // number of kinds of hostile clients; consecutive tenants differ in kind

Scenario any_scenario() {
  Scenario scenario;
  scenario.seed = *rc::gen::arbitrary<std::uint64_t>();
  scenario.tenants = *rc::gen::inRange(1u, 5u);
  scenario.most_sessions = *rc::gen::inRange(1u, 3u);
  scenario.largest_growth = *rc::gen::inRange(2u, 60u);
  scenario.gpus = *rc::gen::inRange(1u, 3u);
  scenario.hostile = *rc::gen::inRange(1u, 4u);
  scenario.length = 1s * *rc::gen::inRange(60, 180);
  return scenario;
}

bool holds(const std::string& name, const std::function<void(Scenario&)>& change) {
  return rc::check(name, [&] {
    Scenario scenario = any_scenario();
    change(scenario);
    World world(scenario);
    world.run();
  });
}

TEST_CASE("Hostile clients of every kind take neither time nor memory from honest processes") {
  CHECK(holds("hostile", [](Scenario&) {}));
}

TEST_CASE("Hostile clients with absurd units, shares and deadlines gain nothing by them") {
  CHECK(holds("absurd", [](Scenario& scenario) { scenario.absurd = true; }));
}

TEST_CASE("Hostile clients beside honest processes with away memory") {
  CHECK(holds("away", [](Scenario& scenario) { scenario.oversize = true; }));
}

TEST_CASE("Hostile clients beside honest processes that die") {
  CHECK(holds("deaths", [](Scenario& scenario) { scenario.deaths = true; }));
}

TEST_CASE("Hostile clients beside honest processes that wait for each other") {
  // If a tenant's work on the GPU waits for a sleeping process of the tenant, all tenants wait. This time
  // counts as the tenant's overuse.
  CHECK(holds("lockstep", [](Scenario& scenario) {
    scenario.lockstep = true;
    scenario.longest_sleep = 20;
  }));
}

TEST_CASE("The worlds of hostile clients are lively") {
  Scenario scenario;
  scenario.tenants = 3;
  scenario.largest_growth = 40;
  scenario.hostile = kKinds;
  scenario.gpus = 2;
  scenario.length = 600s;
  World world(scenario);
  world.run();
  CHECK(world.tally().dropped > 0);
  CHECK(world.tally().turns > 50);
  CHECK(world.tally().evictions > 50);
  CHECK(world.tally().kernels > 500);
  CHECK(world.tally().cancelled > 0);
}

}  // namespace
}  // namespace sharedgpu::test
