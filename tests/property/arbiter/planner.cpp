// SPDX-License-Identifier: Apache-2.0
// The times that the planner guarantees, for programs of any size that always work, or work in bursts.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "bench/simulator/stage.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

double part(Nanoseconds of, Nanoseconds whole) {
  return static_cast<double>(of.count()) / static_cast<double>(whole.count());
}

Nanoseconds longest(const std::vector<Nanoseconds>& waits) {
  return waits.empty() ? Nanoseconds{} : *std::max_element(waits.begin(), waits.end());
}

Nanoseconds any_time(int least_ms, int most_ms) {
  return std::chrono::milliseconds(*rc::gen::inRange(least_ms, most_ms));
}

std::vector<Program> any_hogs(int least_size) {
  std::vector<Program> programs(*rc::gen::inRange(2u, 6u));
  for (Program& program : programs) program.size = static_cast<unsigned>(*rc::gen::inRange(least_size, 96));
  return programs;
}

bool holds(const std::string& name, const std::function<void()>& property) {
  return rc::check(name, property);
}

TEST_CASE("Handoffs cost what MaxSwapOverhead allows, and each tenant gets its share") {
  CHECK(holds("overhead", [] {
    const auto programs = any_hogs(10);
    const double overhead = static_cast<double>(*rc::gen::inRange(2, 21)) / 100;
    const Nanoseconds per_mib = std::chrono::microseconds(*rc::gen::inRange(500, 5000));
    const TurnRules turns{.fixed = {}, .max_overhead = overhead, .max_wait = 1h};
    Stage stage(*rc::gen::arbitrary<std::uint64_t>(), turns, per_mib, programs);
    stage.run(100s);
    stage.begin_measuring();
    stage.run(600s);
    RC_ASSERT(stage.gpu().turn.rule == TurnRule::swap_overhead);
    RC_ASSERT(part(stage.lost(), stage.measured()) <= 1.1 * overhead);
    const auto count = static_cast<long>(programs.size());
    const Nanoseconds share = stage.measured() / count * 9 / 10;
    for (std::size_t i = 0; i < programs.size(); ++i)
      RC_ASSERT(stage.seen(i).lease >= Nanoseconds(static_cast<Nanoseconds::rep>(
                                           static_cast<double>(share.count()) * (1 - overhead))) -
                                           2 * stage.gpu().turn.length);
  }));
}

TEST_CASE("Nobody waits longer than MaxWait, or than a round in which handoffs take half of the time") {
  CHECK(holds("waits", [] {
    // If some tenants fit together, each turn may have a different running set, so there can be more running
    // sets than tenants.
    const bool any_sets = *rc::gen::arbitrary<bool>();
    const auto programs = any_hogs(any_sets ? 10 : 51);
    const Nanoseconds max_wait = any_time(1000, 20000);
    const Nanoseconds per_mib = std::chrono::microseconds(*rc::gen::inRange(500, 10000));
    Stage stage(*rc::gen::arbitrary<std::uint64_t>(),
                {.fixed = {}, .max_overhead = 0.01, .max_wait = max_wait}, per_mib, programs);
    stage.run(200s);
    stage.begin_measuring();
    stage.run(500s);
    // No handoff takes longer than moving the memory of the largest tenant and exchanging the messages.
    const Nanoseconds handoff = 100 * per_mib + 50ms;
    const auto count = static_cast<long>(programs.size());
    const Nanoseconds half = (count - 1) * (2 * handoff + 100ms) + handoff;
    for (std::size_t i = 0; i < programs.size(); ++i)
      RC_ASSERT(longest(stage.seen(i).waits) <=
                std::max(max_wait * (any_sets ? 20 : 11) / 10 + count * 50ms, half));
    RC_ASSERT(part(stage.lost(), stage.measured()) <= 0.55);
  }));
}

TEST_CASE(
    "A tenant that always works keeps its share beside tenants that work in bursts, and these do not "
    "starve") {
  CHECK(holds("bursts", [] {
    const Nanoseconds per_mib = std::chrono::microseconds(*rc::gen::inRange(500, 4000));
    std::vector<Program> programs{{.size = 95}};
    const auto bursts = *rc::gen::inRange(1u, 4u);
    for (unsigned i = 0; i < bursts; ++i)
      programs.push_back({.size = static_cast<unsigned>(*rc::gen::inRange(10, 96)),
                          .burst = any_time(1, 3000),
                          .pause = any_time(1, 8000)});
    Stage stage(*rc::gen::arbitrary<std::uint64_t>(), {}, per_mib, programs);
    stage.run(100s);
    stage.begin_measuring();
    stage.run(300s);
    const auto count = static_cast<long>(programs.size());
    const Nanoseconds turn = stage.gpu().turn.length;
    RC_ASSERT(stage.seen(0).lease >= stage.measured() / count * 9 / 10 - 2 * turn);
    for (std::size_t i = 1; i < programs.size(); ++i) {
      RC_ASSERT(stage.seen(i).turns > 0);
      RC_ASSERT(longest(stage.seen(i).waits) <= 100s);
    }
  }));
}

TEST_CASE(
    "A tenant that works in short bursts and pauses for long starts at once beside a tenant that always "
    "works") {
  CHECK(holds("interactive", [] {
    const Nanoseconds per_mib = std::chrono::microseconds(*rc::gen::inRange(500, 4000));
    const auto size = static_cast<unsigned>(*rc::gen::inRange(10, 96));
    const Nanoseconds own = size * per_mib;
    const Nanoseconds burst = any_time(1, 500);
    // Each pause lasts at least half of `pause`. In this time the tenant earns enough to pay for the burst,
    // for both handoffs and for the time in which it holds the GPU idle.
    const Nanoseconds pause = 6 * (2 * burst + 4 * own + 200ms);
    Stage stage(*rc::gen::arbitrary<std::uint64_t>(), {}, per_mib,
                {{.size = 95}, {.size = size, .burst = burst, .pause = pause}});
    stage.run(10 * pause);
    stage.begin_measuring();
    stage.run(70 * pause);
    const Stage::Seen seen = stage.seen(1);
    RC_ASSERT(seen.starts.size() > 50u);
    RC_ASSERT(longest(seen.starts) <= own + 60ms);
    RC_ASSERT(part(stage.seen(0).lease, stage.measured()) >= 0.66);
  }));
}

}  // namespace
}  // namespace sharedgpu::test
