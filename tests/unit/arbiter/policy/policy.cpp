// SPDX-License-Identifier: Apache-2.0
// The rules for the length of turns, for their preemption and for their end because of idleness, without the
// core.
#include <catch2/catch.hpp>

#include "arbiter/core/scheduler/deadline_limits.h"
#include "arbiter/core/scheduler/idleness.h"
#include "arbiter/core/scheduler/lag_account.h"
#include "arbiter/core/scheduler/throttle.h"
#include "arbiter/core/scheduler/turn_end.h"
#include "arbiter/policy/registry.h"
#include "arbiter/policy/turn_length.h"
#include "protocol/policy_names.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// The part of the time that handoffs take if every turn of length `turn` begins with a handoff.
double lost(Nanoseconds handoff, Nanoseconds turn) {
  return static_cast<double>(handoff.count()) / static_cast<double>((handoff + turn).count());
}

TEST_CASE("A fixed quantum determines the length of turns") {
  for (Nanoseconds handoff : {0ms, 400ms, 60000ms}) {
    TurnLength turn = turn_length({.fixed = 10s, .max_overhead = 0.05, .max_wait = 1s}, handoff, 7);
    CHECK(turn.length == 10s);
    CHECK(turn.rule == TurnRule::fixed);
  }
}

TEST_CASE("Handoffs cost as much as MaxSwapOverhead allows") {
  TurnLength turn = turn_length({}, 400ms, 1);
  CHECK(turn.rule == TurnRule::swap_overhead);
  CHECK(turn.handoff == 400ms);
  CHECK(lost(400ms, turn.length) == Approx(0.05));
  turn = turn_length({.fixed = {}, .max_overhead = 0.01, .max_wait = 10min}, 1s, 4);
  CHECK(lost(1s, turn.length) == Approx(0.01));
}

TEST_CASE("A handoff without cost does not make turns arbitrarily short") {
  CHECK(turn_length({}, 0ms, 1).length == 100ms);
  CHECK(turn_length({}, 10us, 3).length == 100ms);
}

TEST_CASE("No tenant waits longer than MaxWait if that is possible") {
  const TurnRules rules{.fixed = {}, .max_overhead = 0.05, .max_wait = 30s};
  for (unsigned waiting = 1; waiting < 20; ++waiting)
    for (Nanoseconds handoff = 50ms; handoff < 20s; handoff = handoff * 3 / 2) {
      CAPTURE(waiting, handoff.count());
      const TurnLength turn = turn_length(rules, handoff, waiting);
      const Nanoseconds wait = waiting * (turn.length + handoff) + handoff;
      if (turn.rule == TurnRule::swap_overhead)
        CHECK(lost(handoff, turn.length) == Approx(0.05).margin(0.001));
      else
        CHECK(lost(handoff, turn.length) > 0.05);
      CHECK(lost(handoff, turn.length) <= 0.5);
      CHECK((wait <= rules.max_wait || turn.length == std::max<Nanoseconds>(handoff, 100ms)));
    }
}

TEST_CASE("Turns have a finite length even if handoffs take very long") {
  const TurnLength turn = turn_length({.fixed = {}, .max_overhead = 0.001, .max_wait = 8760h}, 8760h, 1);
  CHECK(turn.length > 0s);
  CHECK(turn.length <= 24h);
}

TEST_CASE(
    "A preempted tenant comes before tenants that have waited longer, except tenants that may preempt") {
  const auto policy = make_policy("round-robin");
  const TurnRules rules;
  const TurnView turn{.rules = rules,
                      .turn = {.length = 2s, .rule = TurnRule::swap_overhead, .handoff = 100ms}};
  const TenantView preempted{.tenant = {}, .claims = {}, .waited = 1s, .preempted = true};
  const TenantView waits{.tenant = {}, .claims = {}, .waited = 5s};
  const TenantView urgent{.tenant = {}, .claims = {}, .lag = 1s, .waited = 0s};
  CHECK(policy->rank(waits, turn) < policy->rank(preempted, turn));
  CHECK(policy->rank(preempted, turn) < policy->rank(urgent, turn));
}

TEST_CASE("round-robin: lag is earned in pauses, and paid while others wait") {
  const auto policy = make_policy("round-robin");
  const ActivityInterval pause{.pauses = true, .pays = false, .sets = 4, .turn = 10s};
  const ActivityInterval work{.pauses = false, .pays = true, .sets = 4, .turn = 10s};
  const ActivityInterval alone{.pauses = false, .pays = false, .sets = 4, .turn = 10s};
  CHECK(lag_after(policy->rules().account, 0s, pause, 8s) == 2s);
  CHECK(lag_after(policy->rules().account, 2s, alone, 8s) == 2s);
  CHECK(lag_after(policy->rules().account, 2s, work, 3s) == -1s);
  CHECK(lag_after(policy->rules().account, 0s, pause, 1h) == 10s);
  CHECK(lag_after(policy->rules().account, 0s, work, 1h) == -10s);
}

TEST_CASE("A preemption costs lag, and a tenant that has earned lag or is new is not preempted") {
  CHECK_FALSE(can_pay(0s, 0s));
  CHECK_FALSE(can_pay(799ms, 400ms));
  CHECK(can_pay(800ms, 400ms));
  const auto protection = [](Preemption preemption, Nanoseconds lag, Nanoseconds elapsed) {
    return protected_for(preemption, {.tenant = {}, .claims = {}, .lag = lag, .elapsed = elapsed}, 400ms);
  };
  CHECK(protection(Preemption::paid, 0s, 400ms) == 0s);
  CHECK(protection(Preemption::paid, -3s, 100ms) == 300ms);
  CHECK(protection(Preemption::paid, 2s, 1h) == 2s);
  CHECK(protection(Preemption::free, 2s, 1h) == 0s);
  CHECK(protection(Preemption::free, 2s, 100ms) == 300ms);
  CHECK(protection(Preemption::never, 0s, 1h) == Nanoseconds::max());
  CHECK(preemption_cost(Preemption::paid, 400ms) == 800ms);
  CHECK(preemption_cost(Preemption::free, 400ms) == 0s);
}

TEST_CASE(
    "An idle tenant keeps the GPU for as long as a handoff takes, or for less after earlier long pauses") {
  CHECK(idle_patience(400ms, 0, 5ms, 1s) == 400ms);
  CHECK(idle_patience(400ms, 1, 5ms, 1s) == 200ms);
  CHECK(idle_patience(400ms, 3, 5ms, 1s) == 50ms);
  CHECK(idle_patience(400ms, 99, 5ms, 1s) == 50ms);
  CHECK(idle_patience(2ms, 0, 5ms, 1s) == 5ms);
  CHECK(idle_patience(2ms, 3, 5ms, 1s) == 625us);
  CHECK(idle_patience(1min, 0, 5ms, 1s) == 1s);
  CHECK(idle_patience(1min, 0, 2s, 1s) == 2s);
  CHECK(was_long(800ms, 400ms, 5ms));
  CHECK_FALSE(was_long(9ms, 1ms, 5ms));
  CHECK_FALSE(was_long(799ms, 400ms, 5ms));
}

TEST_CASE("Each policy that can be set is there, under its name") {
  for (std::string_view name : kPolicies) {
    const std::unique_ptr<Policy> policy = make_policy(name);
    REQUIRE(policy != nullptr);
    CHECK(policy->name() == name);
  }
  CHECK(make_policy("") == nullptr);
  CHECK(make_policy("no-such-policy") == nullptr);
}

const TurnRules kRules{.fixed = {}, .max_overhead = 0.05, .max_wait = 10s};

TurnView turn_view(bool over = false) {
  return {
      .rules = kRules, .turn = {.length = 4s, .rule = TurnRule::swap_overhead, .handoff = 1s}, .over = over};
}

TenantView tenant_view(Nanoseconds waited, std::int32_t priority = 0) {
  TenantView view;
  view.waited = waited;
  view.claims.priority = priority;
  return view;
}

// config/option_effects.cpp uses these lists to tell users which of their options have no effect under the
// site's policy.
TEST_CASE("The lists of policies that use shares, priorities and deadlines are right") {
  const auto is_in = [](const auto& list, std::string_view name) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  for (const std::string_view name : kPolicies) {
    CAPTURE(name);
    const std::unique_ptr<Policy> policy = make_policy(name);
    CHECK(policy->rules().entitlement.by_requests == is_in(kPoliciesWithShares, name));
    CHECK(policy->rules().entitlement.deadlines == is_in(kPoliciesWithDeadlines, name));
    const auto rank = [&](std::int32_t priority) {
      TenantView view = tenant_view(0s, priority);
      view.claims.deadline = 1min;
      return policy->rank(view, turn_view());
    };
    CHECK((rank(1) > rank(0)) == is_in(kPoliciesWithPriorities, name));
  }
}

TEST_CASE(
    "shortest-first counts what a tenant is expected to need against what it has waited, up to MaxWait") {
  const auto policy = make_policy("shortest-first");
  const auto rank = [&](Nanoseconds waited, Nanoseconds burst, Nanoseconds handoff) {
    TenantView view = tenant_view(waited);
    view.burst = burst;
    view.handoff = handoff;
    return policy->rank(view, turn_view());
  };
  CHECK(rank(0s, 1s, 0s) > rank(1s, 3s, 0s));
  CHECK(rank(0s, 1s, 0s) < rank(3s, 3s, 0s));
  CHECK(rank(0s, 1s, 1s) < rank(0s, 1s, 500ms));
  CHECK(rank(0s, 0s, 0s) < rank(11s, 1h, 0s));
}

TEST_CASE("priority lets a lower priority run only after it has waited for MaxWait per step") {
  const auto policy = make_policy("priority");
  CHECK(policy->rank(tenant_view(9s, 1), turn_view()) > policy->rank(tenant_view(9s, 0), turn_view()));
  CHECK(policy->rank(tenant_view(0s, 1), turn_view()) < policy->rank(tenant_view(10s, 0), turn_view()));
  TenantView high = tenant_view(0s, 1);
  TenantView low = tenant_view(0s, 0);
  CHECK(policy->extends(high, tenant_view(9s), turn_view(true)));
  CHECK_FALSE(policy->extends(high, tenant_view(10s), turn_view(true)));
  CHECK_FALSE(policy->extends(low, tenant_view(0s), turn_view(true)));
  low.elapsed = 900ms;
  CHECK_FALSE(may_preempt(*policy, high, low, turn_view()));
  low.elapsed = 1s;
  CHECK(may_preempt(*policy, high, low, turn_view()));
  low.waited = 10s;  // the tenant got its turn because it had waited for long, so it is not preempted
  CHECK_FALSE(may_preempt(*policy, high, low, turn_view()));
  low.waited = 1h;  // the tenant gets no second turn
  CHECK_FALSE(policy->extends(low, tenant_view(0s, 1), turn_view(true)));
}

TEST_CASE("A policy says when time alone lets a tenant that waits preempt others") {
  const TurnView turn = turn_view();
  CHECK(make_policy("round-robin")->unchanged_for(tenant_view(3s), turn) == Nanoseconds::max());
  CHECK(make_policy("priority")->unchanged_for(tenant_view(3s), turn) == 7s);
  CHECK(make_policy("priority")->unchanged_for(tenant_view(10s), turn) == 10s);
  const auto deadline = make_policy("deadline");
  TenantView owes = tenant_view(0s);
  CHECK(deadline->unchanged_for(owes, turn) == Nanoseconds::max());
  owes.claims.deadline = 20s;
  owes.due = 0.5;
  CHECK(deadline->unchanged_for(owes, turn) == Nanoseconds::max());  // the tenant may preempt now, so its
                                                                     // wait changes nothing
  owes.lag = -3s;
  const Nanoseconds wait = deadline->unchanged_for(owes, turn);
  CHECK(wait > 2s);  // the debt of 3 s must fall to 2 s (half a turn); the tenant earns half a second in each
                     // second
  CHECK(wait < 2001ms);
}

TEST_CASE("credit is earned by units and paid by all that have the GPU") {
  const auto policy = make_policy("credit");
  const auto after = [&](const ActivityInterval& did) {
    return lag_after(policy->rules().account, 0s, did, 4s);
  };
  CHECK(after({.turn = 100s, .share = 0.25}) == 1s);
  CHECK(after({.pays = true, .turn = 100s, .share = 0.25}) == -3s);
  CHECK(after({.pays = true, .turn = 100s, .holders = 2, .share = 0.25}) == -1s);
  CHECK(after({.turn = 100s, .comes_in = true, .share = 0.25}) == -3s);
  CHECK(after({.pays = true, .turn = 100s, .overuses = true, .share = 0.25}) == -7s);
  CHECK(after({.pays = true, .turn = 500ms, .share = 0}) == -2s);  // the balance is never below minus four
                                                                   // turns
  TenantView rich;
  TenantView poor;
  rich.lag = 1s;
  CHECK(policy->rank(rich, turn_view()) > policy->rank(poor, turn_view()));
  CHECK(policy->extends(rich, poor, turn_view(true)));
  CHECK_FALSE(policy->extends(poor, rich, turn_view(true)));
}

TEST_CASE("fcfs has turns that end with the work, or after Quantum") {
  const auto policy = make_policy("fcfs");
  CHECK(policy->length(kRules, 1s, 3).rule == TurnRule::work);
  CHECK(policy->length(kRules, 1s, 3).length == 24h);
  CHECK(policy->length({.fixed = 2s}, 1s, 3).length == 2s);
  CHECK(policy->rank(tenant_view(2s), turn_view()) > policy->rank(tenant_view(1s), turn_view()));
}

TEST_CASE("elastic: requests, then the rest by units up to the limits") {
  const auto policy = make_policy("elastic");
  const auto due = [&](const std::vector<Claims>& competing) {
    return shares(policy->rules().entitlement, competing);
  };
  const auto are = [](const std::vector<double>& found, const std::vector<double>& right) {
    REQUIRE(found.size() == right.size());
    for (std::size_t i = 0; i < right.size(); ++i) CHECK(found[i] == Approx(right[i]));
  };
  are(due({}), {});
  are(due({{}}), {1});
  are(due({{.units = 3}, {.units = 1}}), {0.75, 0.25});
  are(due({{.request = 0.5}, {.request = 0.3}}), {0.6, 0.4});
  are(due({{.request = 0.9}, {.request = 0.6}}), {0.6, 0.4});
  are(due({{.request = 0.2, .limit = 0.3}, {.request = 0.2, .limit = 0.4}, {.request = 0.1}}),
      {0.3, 0.4, 0.3});
  are(due({{.request = 0.6, .limit = 0.6}, {.request = 0.2, .limit = 0.2}}), {0.6, 0.2});
}

TEST_CASE("elastic: what is used beyond a turn is paid back, and forgotten in a pause of 10 s") {
  const auto policy = make_policy("elastic");
  const ActivityInterval runs{
      .turn = 15ms, .counted = true, .holds = true, .leases = 1, .due = 0.25, .due_to_holders = 0.25};
  const ActivityInterval waits{.turn = 15ms, .counted = true, .holds = false, .leases = 1, .due = 0.25};
  const ActivityInterval pauses{.pauses = true, .turn = 15ms, .due = 0.25};
  const Nanoseconds debt = lag_after(policy->rules().account, {}, runs, 4s);
  CHECK(debt == -3s);
  CHECK(lag_after(policy->rules().account, debt, waits, 12s) == 0s);
  const Nanoseconds rest = lag_after(policy->rules().account, debt, pauses, 2s);
  CHECK(rest > -1200ms);
  CHECK(rest < -1100ms);
  // The result is the same, however often the account is updated.
  Nanoseconds looked_at = debt;
  for (int i = 0; i < 2000; ++i) looked_at = lag_after(policy->rules().account, looked_at, pauses, 1ms);
  CHECK(std::chrono::abs(looked_at - rest) < 10us);
  CHECK(lag_after(policy->rules().account, {}, runs, 1h) == -10s);
  CHECK(lag_after(policy->rules().account, -10s, pauses, 10s) == 0s);
  CHECK(lag_after(policy->rules().account, 1s, pauses, 400ms) == 600ms);
  ActivityInterval limited = pauses;
  limited.limit = 0.25;  // in a pause, the account rises at the rate `limit`, not at the smaller rate `due`
  limited.due = 0.1;
  CHECK(lag_after(policy->rules().account, -1s, limited, 2s) == -500ms);
  CHECK(lag_after(policy->rules().account, -1s, limited, 4s) == 0s);
  CHECK(lag_after(policy->rules().account, {}, waits, 1h) == 2500ms);
  // No tenant is charged if no turns are needed, and a handoff is charged to no tenant.
  CHECK(lag_after(policy->rules().account, 1s, {.counted = false, .holds = true, .leases = 2, .due = 0.5},
                  1h) == 1s);
  CHECK(lag_after(policy->rules().account, 1s, {.counted = true, .leases = 0, .due = 0.5}, 1h) == 1s);
  // Each of several tenants that run together pays for its own part.
  ActivityInterval beside = runs;
  beside.due_to_holders = 1;
  CHECK(lag_after(policy->rules().account, {}, beside, 4s) == 0s);
  beside.due_to_holders = 0.5;  // half of the GPU's time is due to tenants that wait
  CHECK(lag_after(policy->rules().account, {}, beside, 4s) == -1s);
}

TEST_CASE("elastic: a tenant with an equal share waits no longer than MaxWait if that is possible") {
  const auto policy = make_policy("elastic");
  const TurnRules rules{.fixed = {}, .max_overhead = 0.05, .max_wait = 30s};
  for (unsigned waiting = 1; waiting < 20; ++waiting)
    for (Nanoseconds handoff = 50ms; handoff < 20s; handoff = handoff * 3 / 2) {
      CAPTURE(waiting, handoff.count());
      const TurnLength step = policy->length(rules, handoff, waiting);
      const double due = 1.0 / (waiting + 1);
      // In a turn, the account falls from half of `step.length` to minus half of it.
      const auto turn = std::chrono::duration<double>(step.length) / (1 - due);
      const auto wait = waiting * (turn + handoff) + handoff;
      if (step.rule == TurnRule::max_wait) CHECK((wait <= 30.01s || turn <= handoff * 1.01));
    }
}

TEST_CASE(
    "elastic: the tenant with the larger lag goes first, and all tenants with almost full accounts rank "
    "equally") {
  const auto policy = make_policy("elastic");
  const auto rank = [&](Nanoseconds waited, Nanoseconds lag, double due) {
    TenantView view = tenant_view(waited);
    view.claims = {.request = due};
    view.lag = lag;
    view.due = due;
    return policy->rank(view, turn_view()).weight;
  };
  CHECK(rank(0s, 2s, 0.5) > rank(9s, 1s, 0.5));
  CHECK(rank(0s, 1s, 0.25) < rank(0s, 2s, 0.5));
  CHECK(rank(0s, 2300ms, 0.25) == rank(0s, 4600ms, 0.5));
}

TEST_CASE("elastic: a tenant at its limit waits until it has earned the time that it used") {
  const auto policy = make_policy("elastic");
  const TurnRules rules;
  const TurnView turn{.rules = rules, .turn = {.length = 15ms, .rule = TurnRule::swap_overhead}};
  TenantView view;
  view.claims = {.request = 0.5, .limit = 0.5};
  view.lag = -10ms;
  view.due = 0.5;
  CHECK(throttled_for(policy->rules(), view) >= 20ms);
  CHECK(throttled_for(policy->rules(), view) < 21ms);
  CHECK(budget_left(policy->rules(), view, turn) <= 0ms);
  view.lag = 0ms;
  CHECK(throttled_for(policy->rules(), view) == 0ms);
  CHECK(budget_left(policy->rules(), view, turn) >= 15ms);
  CHECK(budget_left(policy->rules(), view, turn) < 16ms);
  view.claims.limit = 1;
  view.lag = -10s;
  CHECK(throttled_for(policy->rules(), view) == 0ms);
  CHECK(budget_left(policy->rules(), view, turn) == Nanoseconds::max());
}

TEST_CASE("elastic: a turn has room for whole submissions, as many as come closest to what is due") {
  const auto policy = make_policy("elastic");
  const TurnRules rules;
  const TurnView turn{.rules = rules, .turn = {.length = 20ms, .rule = TurnRule::swap_overhead}};
  TenantView view;
  view.due = 0.5;
  view.lag = 10ms;  // in a turn, the account falls from 10 ms to -10 ms, by 1 ms in each 2 ms
  const auto length = [&](Nanoseconds submission) {
    view.submission = submission;
    return std::chrono::round<std::chrono::milliseconds>(turn_left(policy->rules(), view, {}, turn));
  };
  CHECK(length(0ms) == 40ms);
  CHECK(length(17ms) == 38ms);  // two submissions, and a reserve of a quarter of a submission
  CHECK(length(15ms) == 49ms);  // three submissions, and the reserve
  CHECK(length(100ms) == 125ms);
  CHECK(length(1h) == 1250ms);
  view.lag -= 10ms;
  CHECK(std::chrono::round<std::chrono::milliseconds>(turn_left(policy->rules(), view, 20ms, turn)) ==
        1230ms);
  view.submission = {};
  view.lag = -1s;  // a turn lasts at least a quarter of its normal length, even if the tenant has a large
                   // debt
  CHECK(turn_left(policy->rules(), view, {}, turn) == 5ms);
  const TurnView fixed{.rules = rules, .turn = {.length = 20ms, .rule = TurnRule::fixed}};
  CHECK(turn_left(policy->rules(), view, 5ms, fixed) == 15ms);
}

TEST_CASE("elastic: the end of a turn does not change during the turn, nor after it") {
  const auto policy = make_policy("elastic");
  const TurnRules rules;
  const TurnView turn{.rules = rules, .turn = {.length = 15ms, .rule = TurnRule::swap_overhead}};
  for (const Nanoseconds submission : {0us, 20us, 3000us, 40000us}) {
    TenantView view;
    view.claims = {.request = 0.2, .limit = 0.2};
    view.due = 0.2;
    view.submission = submission;
    const auto ends = [&](Nanoseconds had) {
      view.elapsed = had;
      view.lag = 2ms - had * 4 / 5;
      return std::pair(had + budget_left(policy->rules(), view, turn),
                       had + turn_left(policy->rules(), view, had, turn));
    };
    const auto at_first = ends(0ms);
    for (Nanoseconds had = 0ms; had < 100ms; had += 333us) {
      CAPTURE(submission.count(), had.count());
      CHECK(std::chrono::abs(ends(had).first - at_first.first) < 1us);
      CHECK(std::chrono::abs(ends(had).second - at_first.second) < 1us);
    }
  }
}

TEST_CASE("elastic: a tenant that other tenants' turns keep from its limit saves up at most 100 ms") {
  const auto policy = make_policy("elastic");
  const ActivityInterval waits{
      .turn = 15ms, .counted = true, .holds = false, .leases = 1, .due = 0.5, .limit = 0.5};
  CHECK(lag_after(policy->rules().account, {}, waits, 100ms) == 50ms);
  CHECK(lag_after(policy->rules().account, {}, waits, 1h) == 100ms);
  // If turns are longer than 100 ms, the account can hold the length of a turn.
  ActivityInterval long_turns = waits;
  long_turns.turn = 4s;
  CHECK(lag_after(policy->rules().account, {}, long_turns, 1h) == 4s);
}

TEST_CASE("deadline: a tenant that starves goes before those with deadlines") {
  const auto policy = make_policy("deadline");
  const TurnRules rules;
  const TurnView turn{.rules = rules, .turn = {.length = 100ms, .waiting_sets = 2}};
  TenantView urgent;
  urgent.claims.deadline = 20s;
  urgent.due = 0.5;
  TenantView starved;
  starved.due = 0.1;
  const auto starves = [&] { return policy->rank(starved, turn) > policy->rank(urgent, turn); };
  // A tenant starves if its lag exceeds nine tenths of the largest possible lag, and if it has waited longer
  // than two turns of each of three running sets.
  starved.lag = 901ms;
  starved.waited = 601ms;
  CHECK(starves());
  starved.lag = 899ms;
  CHECK_FALSE(starves());
  starved.lag = 901ms;
  starved.waited = 600ms;
  CHECK_FALSE(starves());
  starved.waited = 601ms;
  urgent.claims.priority = kHighestPriority;
  CHECK(starves());
}

TEST_CASE("deadline: nobody preempts a starving tenant until it has had its turn") {
  const auto policy = make_policy("deadline");
  const TurnRules rules;
  const TurnView turn{.rules = rules, .turn = {.length = 100ms, .waiting_sets = 2}};
  TenantView urgent;
  urgent.claims = {.priority = 1, .deadline = 20s};
  TenantView running;
  running.due = 0.1;
  running.lag = 900ms - 90ms;
  running.elapsed = 101ms;  // the tenant's share of this time is 10 ms, so its lag falls by 91 ms
  running.waited = 601ms;
  CHECK_FALSE(may_preempt(*policy, urgent, running, turn));
  running.elapsed = 99ms;
  CHECK(may_preempt(*policy, urgent, running, turn));
  running.elapsed = 101ms;
  running.waited = 600ms;
  CHECK(may_preempt(*policy, urgent, running, turn));
}

TEST_CASE("deadline: a tenant with deadlines preempts tenants of a lower priority") {
  const auto policy = make_policy("deadline");
  const TurnRules rules;
  const TurnView turn{.rules = rules,
                      .turn = {.length = 20ms, .rule = TurnRule::swap_overhead, .handoff = 1ms}};
  TenantView urgent;
  urgent.claims = {.deadline = 25ms};
  TenantView other;
  other.claims = {.priority = -1};
  other.lag = 10ms;
  other.elapsed = 1ms;
  const auto goes_first = [&] {
    const bool preempts = may_preempt(*policy, urgent, other, turn);
    CHECK(preempts == !policy->extends(other, urgent, turn));
    CHECK(preempts == (policy->rank(urgent, turn) > policy->rank(other, turn)));
    CHECK_FALSE(may_preempt(*policy, other, urgent, turn));
    return preempts;
  };
  CHECK(goes_first());
  CHECK(policy->extends(urgent, other, turn));
  urgent.lag = -26ms;  // the tenant exceeded its share by more than its deadline
  CHECK_FALSE(goes_first());
  urgent.lag = -24ms;
  CHECK(goes_first());
  urgent.handoff = 3ms;  // longer than a tenth of the deadline
  CHECK_FALSE(goes_first());
  urgent.handoff = {};
  other.last_drain = 26ms;  // the deadline passes before the drain ends
  CHECK_FALSE(may_preempt(*policy, urgent, other, turn));
  other.last_drain = 24ms;
  CHECK(goes_first());
  other.elapsed = 400us;
  CHECK_FALSE(may_preempt(*policy, urgent, other, turn));
  CHECK(protected_for(policy->rules().preemption, other, turn.turn.handoff) == 600us);
  other.elapsed = 1ms;
  other.claims.priority = 0;
  CHECK_FALSE(may_preempt(*policy, urgent, other, turn));
}

TEST_CASE("deadline: a turn is long enough for the work of a deadline, up to 100 ms") {
  const auto policy = make_policy("deadline");
  const TurnRules rules;
  TurnView turn{.rules = rules, .turn = {.length = 16ms, .rule = TurnRule::swap_overhead, .handoff = 1ms}};
  TenantView leader;
  leader.due = 0.5;
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 16ms + 1us);
  leader.claims.deadline = 30ms;
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 60ms + 1us);
  // The tenant has exceeded its share by as much as its deadline, so the deadline does not extend its turn.
  leader.lag = -30ms;
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 4ms);
  leader.lag = {};
  leader.claims.deadline = 1s;
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 200ms + 1us);
  turn.turn.length = 400ms;
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 400ms + 1us);
  turn.turn.length = 16ms;
  turn.turn.handoff = 100ms;  // with such long handoffs, deadlines do not preempt turns
  CHECK(turn_left(policy->rules(), leader, {}, turn) == 16ms + 1us);
}

TEST_CASE("deadline: misses halve, deadlines that are met add a hundredth, within request and limit") {
  const auto policy = make_policy("deadline");
  const EntitlementRules& rules = policy->rules().entitlement;
  const Claims stated{.request = 0.2, .limit = 0.8};
  CHECK(part_after(rules, 0.8, stated, {.missed = 1}) == 0.4);
  CHECK(part_after(rules, 0.4, stated, {.missed = 2}) == 0.2);
  CHECK(part_after(rules, 0.4, stated, {.met = 7}) == Approx(0.47));
  CHECK(part_after(rules, 0.4, stated, {.met = 1, .missed = 1}) == Approx(0.21));
  CHECK(part_after(rules, 0.79, stated, {.met = 2}) == 0.8);
  CHECK(part_after(rules, 0.06, {}, {.missed = 1}) == 0.05);
  CHECK(part_after(rules, 0.02, {.limit = 0.03}, {.missed = 1}) == 0.03);
  CHECK(part_after(rules, 0.5, stated, {.met = ~0ull, .missed = ~0ull}) == 0.8);
  CHECK(is_exclusive(rules, {.deadline = 1ms}));
  CHECK_FALSE(is_exclusive(rules, {}));
  CHECK(makes_exclusive(rules, {.deadline = 1ms}));
  CHECK_FALSE(makes_exclusive(rules, {.timed = true}));
  CHECK(backlog_limit_beside(rules, {.deadline = 20ms}) == 5ms);
  CHECK(backlog_limit_beside(rules, {.deadline = 1ms}) == 2ms);
  CHECK(backlog_limit_beside(rules, {.deadline = 1h}) == 20ms);
  CHECK(backlog_limit_beside(rules, {.timed = true}) == 0ns);
  for (const std::string_view name : kPolicies) {
    if (name == "deadline") continue;
    const std::unique_ptr<Policy> other = make_policy(name);
    CHECK(part_after(other->rules().entitlement, 0.1, stated, {.missed = 9}) == 0.8);
    CHECK_FALSE(makes_exclusive(other->rules().entitlement, {.timed = true, .deadline = 1ms}));
    CHECK(backlog_limit_beside(other->rules().entitlement, {.timed = true, .deadline = 20ms}) == 0ns);
  }
}

TEST_CASE("deadline shares the time as elastic does") {
  const auto elastic = make_policy("elastic");
  const auto deadline = make_policy("deadline");
  const std::vector<Claims> competing = {{.units = 3, .request = 0.2, .limit = 0.3}, {.request = 0.4}, {}};
  CHECK(shares(deadline->rules().entitlement, competing) == shares(elastic->rules().entitlement, competing));
}

}  // namespace
}  // namespace sharedgpu
