// SPDX-License-Identifier: Apache-2.0
#include "scenarios.h"

#include <array>

#include "protocol/policy_names.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

// A random generator that gives the same numbers with every standard library.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t any() { return engine_(); }
  unsigned from(unsigned least, unsigned most) {
    return least + static_cast<unsigned>(engine_() % (most - least + 1));
  }
  bool one_in(unsigned count) { return from(1, count) == 1; }

 private:
  std::mt19937_64 engine_;
};

void host(Scenario& scenario, Draw& draw) {
  const auto bound = [&] { return draw.one_in(2) ? draw.from(20, 150) : 0; };
  scenario.host_short = draw.one_in(2);
  scenario.host_cap = bound();
  scenario.host_limit = bound();
  scenario.job_host_limit = bound();
}

// Chooses how the sessions of a tenant depend on each other.
void together(Scenario& scenario, Draw& draw) {
  scenario.entangled = draw.one_in(2);
  scenario.lockstep = !scenario.entangled && draw.one_in(2);
}

void others_rule(Scenario& scenario, Draw& draw) {
  scenario.terms = draw.one_in(2);
  scenario.queries = draw.one_in(2);
  scenario.learned = draw.one_in(2);
}

struct Theme {
  const char* name;
  void (*apply)(Scenario&, Draw&);
};

constexpr std::array kThemes{
    Theme{"plain", [](Scenario&, Draw&) {}},
    Theme{"deaths", [](Scenario& scenario, Draw&) { scenario.deaths = true; }},
    Theme{"pins", [](Scenario& scenario, Draw&) { scenario.pins = true; }},
    Theme{"gpus", [](Scenario& scenario, Draw& draw) { scenario.gpus = draw.from(2, 3); }},
    Theme{"stuck", [](Scenario& scenario, Draw&) { scenario.host_runs_out = true; }},
    Theme{"host",
          [](Scenario& scenario, Draw& draw) {
            host(scenario, draw);
            scenario.restarts = draw.one_in(2) ? draw.from(0, 2) : 0;
          }},
    Theme{"restarts",
          [](Scenario& scenario, Draw& draw) {
            scenario.restarts = draw.from(1, 4);
            scenario.forgets = draw.one_in(2);
          }},
    Theme{"lockstep", [](Scenario& scenario, Draw&) { scenario.lockstep = true; }},
    Theme{"entangled", [](Scenario& scenario, Draw&) { scenario.entangled = true; }},
    Theme{"stops",
          [](Scenario& scenario, Draw& draw) {
            scenario.stops = true;
            scenario.restarts = draw.one_in(2) ? draw.from(0, 2) : 0;
            together(scenario, draw);
          }},
    Theme{"switches",
          [](Scenario& scenario, Draw& draw) {
            scenario.switches = draw.from(1, 10);
            scenario.claims = true;
            scenario.terms = draw.one_in(2);
          }},
    Theme{"terms",
          [](Scenario& scenario, Draw& draw) {
            others_rule(scenario, draw);
            scenario.forgets = scenario.deaths = true;
          }},
    Theme{"everything",
          [](Scenario& scenario, Draw& draw) {
            host(scenario, draw);
            together(scenario, draw);
            others_rule(scenario, draw);
            scenario.host_runs_out = draw.one_in(3);
            scenario.restarts = draw.from(0, 2);
            scenario.stops = draw.one_in(2);
            scenario.pins = draw.one_in(2);
            scenario.forgets = draw.one_in(2);
            scenario.switches = draw.one_in(2) ? draw.from(1, 5) : 0;
          }},
};

const Theme& theme_of(unsigned group) { return kThemes[group % kThemes.size()]; }
std::string_view policy_of(unsigned group) { return kPolicies[group % std::size(kPolicies)]; }

}  // namespace

std::string name_of_group(unsigned group) {
  return std::string(policy_of(group)) + "/" + theme_of(group).name;
}

Scenario scenario_of(unsigned number) {
  const unsigned group = number / kPerGroup;
  Draw draw(number);
  Scenario scenario;
  scenario.checked = false;  // the property tests in this folder check the invariants
  scenario.policy = policy_of(group);
  scenario.seed = draw.any();
  scenario.tenants = draw.from(2, 8);
  scenario.most_sessions = draw.from(1, 3);
  scenario.largest_growth = draw.from(2, 60);
  scenario.claims = draw.one_in(2);
  scenario.deadlines = scenario.claims && draw.one_in(2);
  scenario.deaths = draw.one_in(3);
  scenario.gpus = draw.one_in(3) ? draw.from(2, 3) : 1;
  if (draw.one_in(2))
    scenario.turns = {.fixed = {}, .max_overhead = 0.05, .max_wait = 1s * draw.from(1, 3)};
  else
    scenario.turns.fixed = 100ms * draw.from(2, 10);
  scenario.length = 1s * draw.from(10, 30);
  theme_of(group).apply(scenario, draw);
  return scenario;
}

}  // namespace sharedgpu::test
