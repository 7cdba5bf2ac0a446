// SPDX-License-Identifier: Apache-2.0
// Every policy with random programs: the invariants of world.h hold, no tenant waits longer than the policy
// states, and the same events give the same decisions. Also checks the times that each policy guarantees.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "bench/simulator/stage.h"
#include "protocol/policy_names.h"
#include "world.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

constexpr Nanoseconds kMaxWait = 2s;

std::vector<std::string> all_policies() { return {std::begin(kPolicies), std::end(kPolicies)}; }

// Returns the time beyond a round of turns that a tenant may wait under the scenario's policy.
Nanoseconds patience_with(const Scenario& scenario) {
  constexpr unsigned kMostUnits = 3;
  constexpr unsigned kPriorities = 3;
  if (scenario.policy == "shortest-first") return kMaxWait;
  if (scenario.policy == "priority") return kPriorities * kMaxWait;
  // A tenant may first have to repay a debt of 10 s. Stated shares leave at least two fifths of the time.
  // Tenants share this part in proportion to their units.
  if (scenario.policy == "elastic") return 25s * kMostUnits * scenario.tenants;
  // The bound of elastic, plus the time in which a tenant repays a debt of 10 s if deadlines leave it a
  // twentieth of the time.
  if (scenario.policy == "deadline") return 200s + 25s * kMostUnits * scenario.tenants;
  if (scenario.policy != "credit") return {};
  const Nanoseconds turn = scenario.turns.fixed > Nanoseconds{} ? scenario.turns.fixed : kMaxWait;
  return 8 * turn * kMostUnits * scenario.tenants;
}

Scenario any_scenario(const std::string& policy) {
  Scenario scenario;
  scenario.policy = policy;
  scenario.seed = *rc::gen::arbitrary<std::uint64_t>();
  scenario.tenants = *rc::gen::inRange(1u, 7u);
  scenario.most_sessions = *rc::gen::inRange(1u, 4u);
  scenario.largest_growth = *rc::gen::inRange(2u, 60u);
  scenario.claims = *rc::gen::arbitrary<bool>();
  scenario.deadlines = scenario.claims && *rc::gen::arbitrary<bool>();
  scenario.deaths = *rc::gen::arbitrary<bool>();
  scenario.gpus = *rc::gen::inRange(1u, 3u);
  scenario.restarts = *rc::gen::arbitrary<bool>() ? *rc::gen::inRange(0u, 3u) : 0u;
  // If several sessions request to pin memory when the arbiter dies, the next arbiter counts all this memory
  // as pinned. The memory that is left may be too small for another tenant.
  scenario.pins = scenario.restarts == 0 && *rc::gen::arbitrary<bool>();
  scenario.turns.max_wait = kMaxWait;
  // In this test, fcfs always has a quantum. Without a quantum, only the length of other tenants' work would
  // bound the wait.
  if (policy != "fcfs" && *rc::gen::arbitrary<bool>()) scenario.turns.fixed = {};
  scenario.length = std::chrono::seconds(*rc::gen::inRange(10, 60));
  scenario.patience = patience_with(scenario);
  return scenario;
}

World::Tally seen(const Scenario& scenario) {
  World world(scenario);
  world.run();
  return world.tally();
}

TEST_CASE(
    "Whatever the policy, memory and leases are right, nobody starves and decisions repeat themselves") {
  for (const std::string& policy : all_policies())
    CHECK(rc::check(policy, [&] {
      const Scenario scenario = any_scenario(policy);
      const World::Tally tally = seen(scenario);
      if (scenario.seed % 4 == 0) RC_ASSERT(seen(scenario).decisions == tally.decisions);
    }));
}

TEST_CASE("Policies that replace each other while programs run") {
  CHECK(rc::check("switches", [] {
    Scenario scenario = any_scenario("round-robin");
    scenario.turns.fixed = 500ms;
    scenario.switches = *rc::gen::inRange(1u, 20u);
    scenario.gpus = *rc::gen::inRange(1u, 4u);
    scenario.claims = true;
    for (const std::string& policy : all_policies()) {
      Scenario other = scenario;
      other.policy = policy;
      scenario.patience += patience_with(other);
    }
    seen(scenario);
  }));
}

TEST_CASE("The worlds of every policy are lively") {
  for (const std::string& policy : all_policies()) {
    Scenario scenario;
    scenario.policy = policy;
    scenario.tenants = 4;
    scenario.largest_growth = 40;
    scenario.claims = scenario.deadlines = true;
    scenario.patience = 200s;
    const World::Tally tally = seen(scenario);
    CAPTURE(policy);
    CHECK(tally.turns > 20);
    CHECK(tally.evictions > 20);
    CHECK((tally.bounded > 100) == (scenario.policy == "deadline"));
  }
}

// ---- times that policies guarantee ----

constexpr Nanoseconds kPerMib = 1ms;

Nanoseconds longest(const std::vector<Nanoseconds>& waits) {
  return waits.empty() ? Nanoseconds{} : *std::max_element(waits.begin(), waits.end());
}

Nanoseconds mean(const std::vector<Nanoseconds>& waits) {
  Nanoseconds sum{};
  for (const Nanoseconds wait : waits) sum += wait;
  return waits.empty() ? sum : sum / static_cast<long>(waits.size());
}

Program hog(std::uint32_t units, std::int32_t priority = 0) {
  return {.size = 60, .burst = {}, .pause = {}, .claims = {.units = units, .priority = priority}};
}

TEST_CASE("credit shares the time of tenants that always work by their units") {
  for (const std::vector<std::uint32_t>& units :
       std::vector<std::vector<std::uint32_t>>{{1, 1}, {3, 1}, {8, 1}, {5, 3, 2}, {1, 2, 4, 8}}) {
    std::vector<Program> programs;
    std::uint32_t sum = 0;
    for (const std::uint32_t its : units) programs.push_back(hog(its)), sum += its;
    Stage stage(sum, {}, kPerMib, programs, "credit");
    stage.run(200s);
    stage.begin_measuring();
    stage.run(2000s);
    Nanoseconds all{};
    for (std::size_t i = 0; i < programs.size(); ++i) all += stage.seen(i).lease;
    for (std::size_t i = 0; i < programs.size(); ++i) {
      CAPTURE(sum, units[i]);
      const Nanoseconds due = all * units[i] / sum;
      const Nanoseconds turn = stage.gpu().turn.length;  // a lease time differs from `due` by up to two turns
      CHECK(stage.seen(i).lease > due - all / 100 - 2 * turn);
      CHECK(stage.seen(i).lease < due + all / 100 + 2 * turn);
    }
  }
}

TEST_CASE("priority: a higher priority gets the GPU at once, and a lower priority gets a turn as it ages") {
  const TurnRules turns{.fixed = {}, .max_overhead = 0.05, .max_wait = 10s};
  Stage stage(1, turns, kPerMib, {hog(1, 3), hog(1, 0)}, "priority");
  stage.run(100s);
  stage.begin_measuring();
  stage.run(1000s);
  const Stage::Seen low = stage.seen(1);
  CHECK(low.turns >= 20);
  CHECK(low.lease < stage.measured() / 10);
  CHECK(longest(low.waits) >= 30s);
  CHECK(longest(low.waits) <= 40s + 2 * stage.gpu().turn.length);

  const Program interactive{.size = 60, .burst = 300ms, .pause = 5s, .claims = {.units = 1, .priority = 1}};
  Stage beside(1, turns, kPerMib, {hog(1, 0), interactive}, "priority");
  beside.run(100s);
  beside.begin_measuring();
  beside.run(1000s);
  CHECK(beside.seen(1).starts.size() > 100);
  CHECK(mean(beside.seen(1).starts) < 300ms);  // the program's time to enter, and the other tenant's time to
                                               // drain
}

TEST_CASE("priority: the time before a program came does not count as waiting") {
  const TurnRules turns{.fixed = 1h, .max_overhead = 0.05, .max_wait = 30s};
  Program low = hog(1, 0);
  low.arrival = 100s;
  Stage stage(1, turns, kPerMib, {hog(1, 3), low}, "priority");
  stage.run(1000s);
  REQUIRE(stage.seen(1).turns > 0);
  CHECK(stage.seen(1).waits.front() >= 120s);
  CHECK(stage.seen(1).waits.front() <= 125s);
}

// ---- elastic ----

struct Share {
  double request;
  double limit = 1;
};

Program busy(Share share, std::uint32_t units = 1) {
  return {.size = 5,
          .claims = {.units = units, .request = share.request, .limit = share.limit, .timed = true}};
}

// For each window of 10 s, in steps of 0.1 s, compares each program's fraction of all lease time with `due`.
// Returns the largest difference.
double worst_error(Stage& stage, const std::vector<double>& due, Nanoseconds time) {
  constexpr std::size_t kWindow = 100;  // tenths of a second
  std::vector<std::vector<Nanoseconds>> seen(due.size());
  double worst = 0;
  for (Nanoseconds at{}; at < time; at += 100ms) {
    stage.run(100ms);
    Nanoseconds all{};
    for (std::size_t i = 0; i < due.size(); ++i) {
      seen[i].push_back(stage.seen(i).lease);
      if (seen[i].size() > kWindow) all += seen[i].back() - *(seen[i].end() - 1 - kWindow);
    }
    for (std::size_t i = 0; i < due.size() && all > Nanoseconds{}; ++i) {
      const Nanoseconds its = seen[i].back() - *(seen[i].end() - 1 - kWindow);
      const double share = static_cast<double>(its.count()) / static_cast<double>(all.count());
      worst = std::max(worst, std::abs(share - due[i]));
    }
  }
  return worst;
}

TEST_CASE("elastic: the shares of 2 to 16 tenants that always work are exact in every window of 10 s") {
  const auto error_of = [](const std::vector<double>& requests) {
    std::vector<Program> programs;
    for (const double request : requests) programs.push_back(busy({.request = request}));
    Stage stage(7, {}, 0ms, programs, "elastic");
    stage.run(5s);
    return worst_error(stage, requests, 60s);
  };
  CHECK(error_of({0.75, 0.25}) < 0.003);
  CHECK(error_of({0.5, 0.3, 0.2}) < 0.003);
  CHECK(error_of({0.99, 0.01}) < 0.003);
  for (std::size_t n = 2; n <= 16; ++n) {
    CAPTURE(n);
    CHECK(error_of(std::vector<double>(n, 1.0 / static_cast<double>(n))) < 0.003);
    std::vector<double> steps;  // shares in the ratio 1 : 2 : 3 : ...
    for (std::size_t i = 1; i <= n; ++i)
      steps.push_back(2.0 * static_cast<double>(i) / static_cast<double>(n * (n + 1)));
    CHECK(error_of(steps) < 0.003);
  }
}

TEST_CASE("elastic and deadline: a turn that is longer than the window ends, too") {
  const Program half{.size = 60, .claims = {.request = 0.5}};
  for (const char* policy : {"elastic", "deadline"}) {
    CAPTURE(policy);
    Stage stage(1, {}, 20ms, {half, half}, policy);
    stage.run(1000s);
    CHECK(stage.gpu().turn.length > 20s);
    for (std::size_t i : {0, 1}) {
      CHECK(stage.seen(i).lease > 400s);
      // With two tenants of equal shares, a turn lasts up to twice `turn.length`.
      for (const Nanoseconds wait : stage.seen(i).waits) CHECK(wait <= 60s);
    }
  }
}

TEST_CASE("elastic: requests are met, what is left goes by units, and nobody passes its limit") {
  struct Case {
    std::vector<Share> shares;
    std::vector<double> due;
  };
  for (const Case& each :
       std::vector<Case>{{{{0.5}, {0.3}}, {0.6, 0.4}},
                         {{{0.6, 0.6}, {0.2}}, {0.6, 0.4}},
                         {{{0.9}, {0.6}}, {0.6, 0.4}},  // the stated shares exceed the whole time
                         {{{0.2, 0.3}, {0.2, 0.4}, {0.1}}, {0.3, 0.4, 0.3}}}) {
    std::vector<Program> programs;
    for (const Share& share : each.shares) programs.push_back(busy(share));
    Stage stage(3, {}, 0ms, programs, "elastic");
    stage.run(5s);
    CAPTURE(each.due);
    CHECK(worst_error(stage, each.due, 30s) < 0.003);
  }
}

// Returns the largest and the smallest part of wall-clock time that a program had in any window of 10 s.
std::pair<double, double> share_of_time(Stage& stage, std::size_t program, Nanoseconds time) {
  constexpr std::size_t kWindow = 100;
  std::vector<Nanoseconds> seen;
  std::pair<double, double> share{1, 0};
  for (Nanoseconds at{}; at < time; at += 100ms) {
    stage.run(100ms);
    seen.push_back(stage.seen(program).lease);
    if (seen.size() <= kWindow) continue;
    const double its = std::chrono::duration<double>(seen.back() - *(seen.end() - 1 - kWindow)).count() / 10;
    share = {std::min(share.first, its), std::max(share.second, its)};
  }
  return share;
}

TEST_CASE("elastic: limits hold also where nobody else wants the GPU") {
  Stage alone(3, {}, 0ms, {busy({.request = 0.1, .limit = 0.6})}, "elastic");
  alone.run(5s);
  const auto [least, most] = share_of_time(alone, 0, 60s);
  CHECK(least > 0.597);
  CHECK(most < 0.603);

  const std::vector<Program> both = {busy({.request = 0.6, .limit = 0.6}),
                                     busy({.request = 0.2, .limit = 0.2})};
  for (std::size_t i = 0; i < both.size(); ++i) {
    Stage stage(3, {}, 0ms, both, "elastic");
    stage.run(5s);
    const auto [its_least, its_most] = share_of_time(stage, i, 60s);
    CHECK(its_least > both[i].claims.limit - 0.01);
    CHECK(its_most < both[i].claims.limit + 0.003);
  }
}

TEST_CASE(
    "elastic: what a tenant does not use goes to other tenants within a window, and comes back at once") {
  Program pausing = busy({.request = 0.6});
  pausing.burst = 30s;
  pausing.pause = 30s;
  Stage stage(5, {}, 0ms, {pausing, busy({.request = 0.2}), busy({.request = 0.1})}, "elastic");
  stage.run(1s);
  Nanoseconds before[3] = {};
  Nanoseconds alike{};  // time for which the first program has worked, or has paused, without a change
  bool worked = false;
  unsigned used = 0;
  unsigned unused = 0;
  for (Nanoseconds at{}; at < 600s; at += 1s) {
    stage.run(1s);
    double share[3];
    bool works = false;
    for (std::size_t i = 0; i < 3; ++i) {
      const Nanoseconds lease = stage.seen(i).lease;
      share[i] = std::chrono::duration<double>(lease - std::exchange(before[i], lease)).count();
      if (i == 0) works = share[0] > 0.3;
    }
    alike = works == std::exchange(worked, works) ? alike + 1s : 0s;
    if (alike < 3s) continue;
    const bool ends = stage.works(0) != works;
    if (works && !ends) {
      ++used;
      CHECK(share[0] > 0.6 - 0.01);  // a margin, since a second has few turns
      CHECK(share[1] > 0.2 - 0.01);
      CHECK(share[2] > 0.1 - 0.01);
    } else if (!works && !ends) {
      ++unused;
      CHECK(share[0] < 0.001);
      CHECK(share[1] > 0.5);  // the program's stated share, and half of the time that is left
      CHECK(share[2] > 0.4);
    }
  }
  CHECK(used > 100);
  CHECK(unused > 100);
}

// A tenant without a stated share: with UnitsPerGpu=8, each of its units requests an eighth of the time.
Program of_units(unsigned size, unsigned units) {
  return {.size = size, .claims = {.units = units, .request = units / 8.0}};
}

TEST_CASE("elastic and deadline: a tenant that fits beside each other tenant does not change their shares") {
  const auto program = [](unsigned size, double request) {
    return Program{.size = size, .claims = {.request = request}};
  };
  const std::vector<double> requests{0.5, 0.3, 0.2};
  for (const char* policy : {"elastic", "deadline"})
    for (const Nanoseconds pause : {0ms, 100ms}) {
      std::vector<Program> programs;
      for (const double request : requests) programs.push_back(program(60, request));
      programs.push_back(program(1, 0.3));
      programs.back().burst = programs.back().pause = pause;
      Stage stage(1, {}, 1ms, programs, policy);
      stage.run(300s);
      stage.begin_measuring();
      stage.run(300s);
      CAPTURE(policy, pause / 1ms);
      Nanoseconds all{};
      for (std::size_t i = 0; i < requests.size(); ++i) all += stage.seen(i).lease;
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const std::chrono::duration<double> error = stage.seen(i).lease - all * requests[i];
        CHECK(std::chrono::abs(error) < 6s);
        CHECK(longest(stage.seen(i).waits) < 6 * stage.gpu().turn.length);
      }
    }
}

TEST_CASE("elastic and deadline: a tenant that does not fit beside tenants that run together has its part") {
  for (const char* policy : {"elastic", "deadline"})
    for (const std::vector<Program>& programs : std::vector<std::vector<Program>>{
             {of_units(45, 2), of_units(45, 1), of_units(80, 1)},
             {of_units(50, 7), of_units(40, 1), of_units(70, 1)},
             {of_units(30, 4), of_units(30, 1), of_units(30, 1), of_units(80, 2)}}) {
      double units = 0;
      for (const Program& program : programs) units += program.claims.units;
      Stage stage(1, {}, kPerMib, programs, policy);
      stage.run(1000s);
      const double due = programs.back().claims.units / units;
      CAPTURE(policy, due);
      CHECK(stage.seen(programs.size() - 1).lease > due * 900s);
      CHECK(stage.seen(0).lease > (1 - due) * 800s);
    }
}

TEST_CASE(
    "elastic and deadline: short jobs that follow each other keep nobody waiting for more than MaxWait") {
  std::vector<Program> programs{of_units(80, 1)};
  for (int i = 0; i < 500; ++i) {
    programs.push_back(of_units(30, 1));
    programs.back().arrival = i * 600ms;
    programs.back().work = 1s;
  }
  for (const char* policy : {"elastic", "deadline"}) {
    Stage stage(1, {}, kPerMib, programs, policy);
    stage.run(300s);
    CHECK(longest(stage.seen(0).waits) < 31s);
  }
}

TEST_CASE("elastic and deadline: no tenant waits for ever, whatever the programs do") {
  for (const char* policy : {"elastic", "deadline"})
    CHECK(rc::check(policy, [&] {
      std::vector<Program> programs;
      double units = 0;
      const unsigned count = *rc::gen::inRange(2u, 6u);
      for (unsigned i = 0; i < count; ++i) {
        Program program = of_units(*rc::gen::inRange(5u, 95u), *rc::gen::inRange(1u, 8u));
        units += program.claims.units;
        program.claims.timed = *rc::gen::inRange(0, 4) == 0;
        program.claims.priority = *rc::gen::inRange(0, 2);
        if (*rc::gen::inRange(0, 3) == 0) program.claims.deadline = 1ms * *rc::gen::inRange(10, 2000);
        if (*rc::gen::arbitrary<bool>()) {
          program.burst = 1ms * *rc::gen::inRange(10, 3000);
          program.pause = 1ms * *rc::gen::inRange(10, 3000);
        }
        programs.push_back(program);
      }
      const Nanoseconds per_mib = 100us * *rc::gen::inRange(1, 20);
      Stage stage(*rc::gen::arbitrary<std::uint64_t>(), {}, per_mib, programs, policy);
      stage.run(200s);
      for (unsigned i = 0; i < count; ++i) {
        // A tenant waits until it has repaid the largest debt, 10 s, and then for one turn of each other
        // tenant.
        const double due = programs[i].claims.units / units;
        const auto bound = 10s / due + count * 31s;
        RC_ASSERT(longest(stage.seen(i).waits) < bound);
        if (programs[i].burst != Nanoseconds{}) continue;
        RC_ASSERT(stage.seen(i).lease > 200s * due / 4);
      }
    }));
}

TEST_CASE("elastic: pauses do not lift a limit") {
  for (const auto& [burst, pause] : std::vector<std::pair<Nanoseconds, Nanoseconds>>{
           {9ms, 10ms}, {9ms, 20ms}, {20ms, 20ms}, {100ms, 100ms}}) {
    Program program = busy({.request = 0.1, .limit = 0.1});
    program.burst = burst;
    program.pause = pause;
    Stage stage(1, {}, 0ms, {program}, "elastic");
    stage.run(60s);
    CHECK(stage.seen(0).lease < 6100ms);
    CHECK(stage.seen(0).lease > 5500ms);
  }
}

// ---- deadline ----

TEST_CASE("deadline: a tenant that wants more than its share takes nothing from the others' shares") {
  for (int paced : {1, 2, 3}) {
    std::vector<Program> programs{of_units(5, 1), of_units(5, 1)};
    programs[0].claims.request = 0.5;
    programs[1].claims.request = 0.2;
    for (int i = 0; i < paced; ++i) {
      programs.push_back({.size = 5,
                          .burst = 90ms,
                          .pause = 100ms,
                          .claims = {.priority = 1, .request = 0.05, .deadline = 1s}});
    }
    Stage stage(1, {}, 0ms, programs, "deadline");
    stage.run(200s);
    CHECK(stage.seen(0).lease > 98s);
    CHECK(stage.seen(1).lease > 38s);
  }
}

TEST_CASE("deadline: tenants without deadlines do not starve a tenant of a lower priority") {
  std::vector<Program> programs{of_units(7, 3), of_units(60, 7), of_units(83, 1), of_units(45, 5),
                                of_units(15, 5)};
  for (Program& program : programs) program.claims.priority = 1;
  programs[0].burst = 1281ms;
  programs[0].pause = 1535ms;
  programs[4].burst = 2633ms;
  programs[4].pause = 835ms;
  // The second and the fourth program take turns, and the first and the last program fit beside both. So the
  // debts of the first and the last program exceed what an account can hold, and the accounts of the other
  // three programs are always full.
  programs[2].claims.priority = 0;
  programs[2].claims.timed = true;
  Stage stage(1, {}, 100us, programs, "deadline");
  stage.run(200s);
  CHECK(stage.seen(2).lease > 200s / 21 * 0.9);
}

TEST_CASE("deadline: a tenant with deadlines does not starve others of its priority") {
  const auto program = [](unsigned size, unsigned units, int priority, Nanoseconds deadline) {
    Program its = of_units(size, units);
    its.claims.priority = priority;
    its.claims.deadline = deadline;
    its.claims.timed = true;
    return its;
  };
  std::vector<Program> programs{program(55, 7, 0, 978ms), program(50, 4, 1, 896ms), program(24, 3, 0, 563ms),
                                program(15, 4, 1, 530ms), program(5, 1, 0, 0ms)};
  programs[2].burst = 291ms;
  programs[2].pause = 368ms;
  programs[3].burst = 153ms;
  programs[3].pause = 125ms;
  Stage stage(0, {}, 100us, programs, "deadline");
  stage.run(200s);
  // The last program has one of 19 units, so its share is a nineteenth. An eighth of all time goes into
  // handoffs.
  CHECK(stage.seen(4).lease > 200s / 19 / 2);
}

TEST_CASE("deadline: a starving tenant does not keep a tenant with deadlines from preempting others") {
  const auto paced = [](unsigned size, Nanoseconds burst, Nanoseconds period) {
    return Program{.size = size,
                   .burst = burst,
                   .claims = {.priority = 1, .request = 0.25, .deadline = period},
                   .period = period};
  };
  // Tenants with a limit soon count as starving, because their accounts can hold only a small lag.
  const auto other = [](unsigned size, unsigned units, Nanoseconds kernel, Nanoseconds burst = {},
                        Nanoseconds pause = {}) {
    return Program{.size = size,
                   .burst = burst,
                   .pause = pause,
                   .claims = {.units = units, .limit = 0.99, .timed = true},
                   .kernel = kernel};
  };
  struct Mix {
    Nanoseconds per_mib;
    std::vector<Program> programs;
  };
  const std::vector<Mix> mixes{
      {79us,
       {paced(6, 19ms, 118ms), other(60, 7, 13ms), other(36, 1, 5ms, 2755ms, 215ms),
        other(89, 1, 17ms, 345ms, 277ms), other(80, 3, 12ms, 741ms, 1293ms), other(17, 1, 14ms)}},
      {58us,
       {paced(16, 12ms, 86ms), other(32, 1, 4ms), other(68, 2, 4ms, 1964ms, 499ms),
        other(82, 1, 17ms, 2059ms, 1695ms), other(20, 1, 12ms, 1696ms, 483ms)}}};
  unsigned missed = 0, met = 0;
  for (const Mix& mix : mixes)
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      Stage stage(seed, {}, mix.per_mib, mix.programs, "deadline");
      stage.run(100s);
      missed += stage.seen(0).missed;
      met += stage.seen(0).met;
    }
  CAPTURE(missed, met);
  CHECK(missed * 500 < met);
}

// Two programs: one has 4.2 ms of work every 33 ms, with a deadline of 8 ms; the other always works.
std::vector<Program> paced_beside_a_hog(double limit) {
  const Program paced{
      .size = 5, .burst = 4200us, .claims = {.priority = 1, .request = 0.5, .deadline = 8ms}, .period = 33ms};
  Program hog{.size = 5, .claims = {.limit = limit, .timed = true}};
  return {paced, hog};
}

TEST_CASE("deadline: fewer misses than with fixed shares, and a limit that halves and then rises in steps") {
  const auto missed_with = [](const char* policy, double limit) {
    Stage stage(1, {}, 0ms, paced_beside_a_hog(limit), policy);
    stage.run(10s);
    stage.begin_measuring();
    stage.run(60s);
    const Stage::Seen seen = stage.seen(0);
    CHECK(seen.met + seen.missed > 60s / 33ms - 10);
    return seen.missed;
  };
  Stage stage(1, {}, 0ms, paced_beside_a_hog(1), "deadline");
  stage.run(10s);
  stage.begin_measuring();
  unsigned falls = 0;
  unsigned rises = 0;
  double before = stage.part(1);
  for (Nanoseconds at{}; at < 60s; at += 5ms) {
    stage.run(5ms);
    const double part = stage.part(1);
    falls += part < before - 1e-9 ? 1 : 0;
    rises += part > before + 1e-9 ? 1 : 0;
    if (part < before - 1e-9) CHECK(part == Approx(std::max(before / 2, 0.05)));
    if (part > before + 1e-9) CHECK(part == Approx(before + 0.01));
    before = part;
  }
  CHECK(falls > 50);
  CHECK(rises > 5 * falls);
  const unsigned missed = stage.seen(0).missed;
  CHECK(missed < missed_with("elastic", 0.2));
  CHECK(missed < missed_with("elastic", 1));
}

TEST_CASE(
    "deadline: a tenant that can never meet its deadlines leaves others their requests, or a twentieth") {
  std::vector<Program> programs = paced_beside_a_hog(1);
  programs[0].claims.deadline = 1ms;
  programs.push_back({.size = 5, .claims = {.request = 0.3, .timed = true}});
  Stage stage(1, {}, 0ms, programs, "deadline");
  stage.run(20s);
  const auto [least, most] = share_of_time(stage, 1, 60s);
  CHECK(stage.part(1) == 0.05);
  CHECK(least > 0.04);
  CHECK(most < 0.06);
  CHECK(stage.part(2) == 0.3);
  CHECK(share_of_time(stage, 2, 60s).first > 0.28);
}

TEST_CASE("fcfs lets each tenant finish its present work, and hands over less often than round-robin") {
  const Program worker{.size = 60, .burst = 20s, .pause = 1s};
  const auto turns_with = [&](const char* policy) {
    Stage stage(1, {}, kPerMib, {worker, worker, worker}, policy);
    stage.run(2000s);
    CHECK(longest(stage.seen(0).waits) <= 2 * 31s);
    return stage.seen(0).turns + stage.seen(1).turns + stage.seen(2).turns;
  };
  CHECK(2 * turns_with("fcfs") < turns_with("round-robin"));
}

TEST_CASE("shortest-first lets short bursts wait less than round-robin does") {
  std::vector<Program> programs(4, {.size = 60, .burst = 3s, .pause = 1s});
  programs.push_back({.size = 60, .burst = 200ms, .pause = 1s});
  const auto wait_with = [&](const char* policy) {
    Stage stage(1, {}, kPerMib, programs, policy);
    stage.run(200s);
    stage.begin_measuring();
    stage.run(2000s);
    CHECK(longest(stage.seen(0).waits) < 60s);
    return mean(stage.seen(4).starts);
  };
  CHECK(wait_with("shortest-first") < wait_with("round-robin"));
}

}  // namespace
}  // namespace sharedgpu::test
