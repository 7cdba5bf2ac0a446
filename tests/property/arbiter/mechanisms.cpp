// SPDX-License-Identifier: Apache-2.0
// Properties of the scheduler's mechanisms that hold for all policies and all behaviour of tenants.
#include <rapidcheck.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "arbiter/core/scheduler/deadline_limits.h"
#include "arbiter/core/scheduler/lag_account.h"
#include "arbiter/core/scheduler/throttle.h"
#include "arbiter/core/scheduler/turn_end.h"
#include "arbiter/policy/registry.h"
#include "protocol/policy_names.h"

namespace sharedgpu::test {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<Policy> any_policy() {
  return make_policy(kPolicies[*rc::gen::inRange<std::size_t>(0, std::size(kPolicies))]);
}

double any_part() { return *rc::gen::inRange(1, 101) / 100.0; }

Claims any_claims() {
  Claims claims;
  claims.units = *rc::gen::inRange(1u, 9u);
  claims.request = any_part();
  claims.limit = any_part();
  claims.timed = *rc::gen::arbitrary<bool>();
  return claims;
}

ActivityInterval any_activity() {
  ActivityInterval did;
  did.pauses = *rc::gen::inRange(0, 4) == 0;
  did.sets = *rc::gen::inRange(1u, 6u);
  did.turn = 1ms * *rc::gen::inRange(1, 20000);
  did.counted = *rc::gen::arbitrary<bool>();
  did.holds = !did.pauses && *rc::gen::arbitrary<bool>();
  did.pays = did.holds && *rc::gen::arbitrary<bool>();
  did.comes_in = !did.holds && !did.pauses && *rc::gen::arbitrary<bool>();
  did.overuses = did.pays && *rc::gen::arbitrary<bool>();
  did.holders = *rc::gen::inRange(1u, 5u);
  did.leases = did.holds ? did.holders : *rc::gen::inRange(0u, 3u);
  did.share = any_part();
  did.due = any_part();
  did.due_to_holders = did.holds ? std::min(1.0, did.due + any_part()) : 0;
  did.limit = *rc::gen::arbitrary<bool>() ? any_part() : 1;
  return did;
}

bool stands_still(const AccountRules& rules, const ActivityInterval& did) {
  return rules.earns == AccountRules::Earns::due && !did.counted && !did.pauses;
}

TEST_CASE("An account is bounded and monotonic, and does not depend on how often it is computed") {
  CHECK(rc::check("lag", [] {
    const auto policy = any_policy();
    const AccountRules& rules = policy->rules().account;
    const ActivityInterval did = any_activity();
    const Nanoseconds turns = rules.most_turns * did.turn;
    const Nanoseconds most_debt = std::max(rules.window, turns);
    const Nanoseconds most = std::max(most_lag(rules, did.due, did.limit), turns);
    const Nanoseconds before =
        std::clamp<Nanoseconds>(1ms * *rc::gen::inRange(-20000, 20000), -most_debt, most);
    const Nanoseconds time = 1us * *rc::gen::inRange(0, 30'000'000);
    const Nanoseconds after = lag_after(rules, before, did, time);
    RC_ASSERT(after >= -most_debt);
    RC_ASSERT(after <= most);
    if (stands_still(rules, did)) RC_ASSERT(after == before);
    RC_ASSERT(lag_after(rules, before, did, {}) == before);

    const Nanoseconds half = lag_after(rules, before, did, time / 2);
    RC_ASSERT(std::min(before, after) <= half);
    RC_ASSERT(half <= std::max(before, after));
    const Nanoseconds in_two = lag_after(rules, half, did, time - time / 2);
    RC_ASSERT(std::chrono::abs(in_two - after) < 1us);
  }));
}

TEST_CASE("With accounts by `due`, tenants that take turns together earn as much as they pay") {
  CHECK(rc::check("sum", [] {
    const auto policy = make_policy("elastic");
    const unsigned count = *rc::gen::inRange(2u, 8u);
    std::vector<Claims> competing(count);
    for (Claims& claims : competing) claims.units = *rc::gen::inRange(1u, 9u);
    const std::vector<double> due = shares(policy->rules().entitlement, competing);
    const unsigned holders = *rc::gen::inRange(1u, count + 1);
    const double due_to_holders = std::accumulate(due.begin(), due.begin() + holders, 0.0);
    Nanoseconds sum{};
    for (unsigned i = 0; i < count; ++i) {
      const bool holds = i < holders;
      const ActivityInterval did{.turn = 1s,
                                 .counted = true,
                                 .holds = holds,
                                 .leases = holders,
                                 .due = due[i],
                                 .due_to_holders = holds ? due_to_holders : 0};
      sum += lag_after(policy->rules().account, {}, did, 100ms);
    }
    RC_ASSERT(std::chrono::abs(sum) < 1us);
  }));
}

TEST_CASE("Shares fill the time up to the limits, and requests that fit together are met") {
  CHECK(rc::check("shares", [] {
    const auto policy = any_policy();
    const EntitlementRules& rules = policy->rules().entitlement;
    std::vector<Claims> competing(*rc::gen::inRange<std::size_t>(1, 9));
    for (Claims& claims : competing) claims = any_claims();
    const std::vector<double> due = shares(rules, competing);
    RC_ASSERT(due.size() == competing.size());
    const double sum = std::accumulate(due.begin(), due.end(), 0.0);
    RC_ASSERT(sum <= 1 + 1e-6);
    double requested = 0;
    bool all_limited = true;
    for (std::size_t i = 0; i < due.size(); ++i) {
      RC_ASSERT(due[i] > 0);
      if (rules.by_requests) RC_ASSERT(due[i] <= competing[i].limit + 1e-6);
      requested += std::min(competing[i].request, competing[i].limit);
      all_limited = all_limited && due[i] >= competing[i].limit - 1e-6;
    }
    if (!rules.by_requests || !all_limited) RC_ASSERT(sum >= 1 - 1e-6);
    for (std::size_t i = 0; i < due.size() && rules.by_requests && requested <= 1; ++i)
      RC_ASSERT(due[i] >= std::min(competing[i].request, competing[i].limit) - 1e-6);
  }));
}

TEST_CASE(
    "A throttled tenant may run when its wait is over, and a tenant that has used up its budget is "
    "throttled") {
  CHECK(rc::check("throttle", [] {
    const auto policy = any_policy();
    const PolicyRules& rules = policy->rules();
    const TurnRules turns;
    const TurnView turn{.rules = turns,
                        .turn = {.length = 1ms * *rc::gen::inRange(15, 1000), .rule = TurnRule::max_wait}};
    TenantView tenant;
    tenant.claims.limit = any_part();
    tenant.due = *rc::gen::arbitrary<bool>() ? tenant.claims.limit : any_part() * tenant.claims.limit;
    tenant.lag = 1us * *rc::gen::inRange(-1'000'000, 100'000);
    const bool limited = rules.entitlement.by_requests && limit_binds(tenant.due, tenant.claims.limit);
    const Nanoseconds wait = throttled_for(rules, tenant);
    const Nanoseconds budget = budget_left(rules, tenant, turn);
    RC_ASSERT((wait > 0ns) == (limited && tenant.lag < 0ns));
    RC_ASSERT((budget == Nanoseconds::max()) == !limited);
    if (!limited) return;
    // After the wait, the tenant has no debt, and has earned at most 2 us more than the debt.
    const ActivityInterval waits{
        .turn = 15ms, .counted = true, .due = tenant.due, .limit = tenant.claims.limit};
    const Nanoseconds then = lag_after(rules.account, tenant.lag, waits, wait);
    if (wait > 0ns) RC_ASSERT(then >= -1ns);
    if (wait > 0ns) RC_ASSERT(then <= 2us);
    // A tenant that has used up its budget is throttled.
    ActivityInterval runs = waits;
    runs.holds = true;
    runs.leases = 1;
    runs.due_to_holders = tenant.due;
    if (budget <= 0ns || budget > 10s) return;
    tenant.lag = lag_after(rules.account, tenant.lag, runs, budget);
    RC_ASSERT(throttled_for(rules, tenant) > 0ns);
  }));
}

TEST_CASE("Missed deadlines lower the limit of other tenants, and met deadlines raise it, in bounds") {
  CHECK(rc::check("deadlines", [] {
    const auto policy = any_policy();
    const EntitlementRules& rules = policy->rules().entitlement;
    const Claims stated = any_claims();
    const DeadlinesSeen seen{.met = *rc::gen::inRange<std::uint64_t>(0, 200),
                             .missed = *rc::gen::inRange<std::uint64_t>(0, 8)};
    const double before = part_after(rules, any_part(), stated, {});
    const double after = part_after(rules, before, stated, seen);
    RC_ASSERT(after <= stated.limit);
    RC_ASSERT(after >= std::min(std::max(0.05, stated.request), stated.limit));
    if (!rules.deadlines) RC_ASSERT(after == stated.limit);
    RC_ASSERT(part_after(rules, before, stated, {.missed = seen.missed}) <= before);
    RC_ASSERT(part_after(rules, before, stated, {.met = seen.met}) >= before);
    RC_ASSERT(part_after(rules, before, stated, {}) == before);
  }));
}

TEST_CASE("Each turn ends, at a time that does not depend on when the policy is asked") {
  CHECK(rc::check("turn end", [] {
    const auto policy = any_policy();
    const TurnRules turns;
    const TurnView turn{
        .rules = turns,
        .turn = policy->length(turns, 1ms * *rc::gen::inRange(0, 2000), *rc::gen::inRange(1u, 8u))};
    TenantView leader;
    leader.due = any_part();
    leader.submission = 1us * *rc::gen::inRange(0, 2'000'000);
    // The lag is within the limits of an account.
    const Nanoseconds lag = 1ms * *rc::gen::inRange(-10'000, 10'000) + 500us;
    leader.lag = lag;
    const Nanoseconds length = turn_left(policy->rules(), leader, {}, turn);
    RC_ASSERT(length > 0ns);
    const Nanoseconds longest = std::max(turns.max_wait, turn.turn.length);
    RC_ASSERT(length <= longest + 2 * std::min<Nanoseconds>(leader.submission, 1s));
    const Nanoseconds elapsed = 1ms * *rc::gen::inRange(0, 30'000);
    leader.lag = lag - scaled(elapsed, 1 - leader.due);
    if (leader.due > 0.95 || leader.submission > 0ns) return;
    RC_ASSERT(std::chrono::abs(elapsed + turn_left(policy->rules(), leader, elapsed, turn) - length) < 1us);
  }));
}

}  // namespace
}  // namespace sharedgpu::test
