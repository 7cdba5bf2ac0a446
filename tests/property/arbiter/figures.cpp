// SPDX-License-Identifier: Apache-2.0
// Checks the core's figures: after each event, it suffices to update the figures of the event's sessions. An
// update of the figures of all sessions gives the same figures.
#include "arbiter/ledger/figure_book.h"

#include <rapidcheck.h>

#include <catch2/catch.hpp>

#include "protocol/policy_names.h"
#include "world.h"

namespace sharedgpu::test {
namespace {

// Keeps the figures of one simulation in two copies. After each event, `by_events` is updated for the
// sessions of the event, and `by_all` for all sessions.
struct Books {
  FigureBook by_events;
  FigureBook by_all;
  unsigned compared = 0;

  void watch(Nanoseconds now, const Core& core, const Event& event, const Actions& actions) {
    by_events.observe(core.sighting(event, actions), now);
    by_all.observe(core.sighting(), now);
    for (const auto& [key, figures] : by_all.all()) {
      RC_ASSERT(by_events.of(key.first, key.second, now) == by_all.of(key.first, key.second, now));
      ++compared;
    }
    RC_ASSERT(by_events.take_news(now) == by_all.take_news(now));
  }
};

Scenario any_scenario() {
  const auto maybe = [] { return *rc::gen::arbitrary<bool>(); };
  Scenario scenario;
  scenario.seed = *rc::gen::arbitrary<std::uint64_t>();
  scenario.policy = kPolicies[*rc::gen::inRange<std::size_t>(0, std::size(kPolicies))];
  scenario.gpus = *rc::gen::inRange(1u, 3u);
  scenario.tenants = *rc::gen::inRange(1u, 6u);
  scenario.most_sessions = *rc::gen::inRange(1u, 4u);
  scenario.checked = false;
  scenario.length = std::chrono::seconds(30);
  if (maybe()) {
    scenario.mutes = *rc::gen::inRange(1u, 3u);
    scenario.patience = scenario.mutes * std::chrono::seconds(17);
    return scenario;
  }
  scenario.deaths = maybe();
  scenario.pins = maybe();
  scenario.host_runs_out = maybe();
  scenario.stops = maybe();
  scenario.lockstep = maybe();
  scenario.surveys = maybe();
  return scenario;
}

TEST_CASE("Figures computed from the sessions of each event equal those computed from all sessions") {
  CHECK(rc::check("figures", [] {
    Books books;
    World world(any_scenario(), {},
                [&](Nanoseconds now, const Core& core, const Event& event, const Actions& actions) {
                  books.watch(now, core, event, actions);
                });
    world.run();
    RC_ASSERT(books.compared > 0);
  }));
}

}  // namespace
}  // namespace sharedgpu::test
