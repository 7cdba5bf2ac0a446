// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/accounts.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {
namespace {

// The debt of a tenant that has ended is kept for this time. In this time, even a tenant with a limit of
// 1/100 repays a debt of 10 s (in 1,000 s).
constexpr std::chrono::minutes kKeptFor{20};

}  // namespace

void Accounts::add(const Tenant& tenant, const Policy& policy) {
  Row& its = rows_.begin(tenant);
  its.policy = &policy;
  its.at = effects_.now();
  take_kept(tenant);
}

void Accounts::keep(const Tenant& tenant) {
  std::erase_if(kept_, [this](const auto& entry) { return effects_.now() - entry.second.at > kKeptFor; });
  const Nanoseconds owed = lag(tenant);
  if (owed >= Nanoseconds{}) return;
  const Row& its = rows_[tenant];
  kept_[tenant.id] = {.policy = its.policy->name(),
                      .balance = owed,
                      .at = effects_.now(),
                      .pauses = {.pauses = true, .due = its.due, .limit = limits_.claims(tenant).limit}};
}

void Accounts::take_kept(const Tenant& tenant) {
  Row& its = rows_[tenant];
  const auto found = kept_.find(tenant.id);
  if (found == kept_.end() || found->second.policy != its.policy->name()) return;
  const Kept& kept = found->second;
  its.balance = lag_after(its.policy->rules().account, kept.balance, kept.pauses, effects_.now() - kept.at);
  its.due = kept.pauses.due;
  kept_.erase(found);
}

bool Accounts::set_policy(const Tenant& tenant, const Policy& policy) {
  Row& its = rows_[tenant];
  const bool another = policy.name() != its.policy->name();
  its.policy = &policy;
  if (!another) return false;
  its.balance = {};
  its.at = effects_.now();
  take_kept(tenant);
  return true;
}

Nanoseconds Accounts::balance_now(const Row& row) const {
  if (row.at == effects_.now()) return row.balance;
  return lag_after(row.policy->rules().account, row.balance, row.activity, effects_.now() - row.at);
}

Nanoseconds Accounts::lag(const Tenant& tenant) const { return balance_now(rows_[tenant]); }

void Accounts::bring_up_to_date(Row& row) const {
  row.balance = balance_now(row);
  row.at = effects_.now();
}

void Accounts::charge(const Tenant& tenant, Nanoseconds price) {
  Row& its = rows_[tenant];
  bring_up_to_date(its);
  its.balance = lag_after(its.policy->rules().account, its.balance - price, its.activity, {});
}

Accounts::Stake Accounts::stake_of(const Tenant& tenant) const {
  const Phase phase = turns_.phase_of(tenant);
  const bool enters = phase == Phase::entering;
  const bool in_turn = phase == Phase::running || phase == Phase::leaving;
  const bool holds = in_turn && turns_.leases().holds(tenant.id);
  return {.enters = enters,
          .holds = holds,
          .competes = enters || holds || (turns_.wants(tenant) && !presence_.absent(tenant))};
}

// Computes two shares for each tenant: `share`, among all tenants of its domain, and `due`, the smallest of
// its shares among the tenants of each of its GPUs. A tenant that does not compete keeps its last `due`.
std::vector<Accounts::Due> Accounts::divide(const Domain& domain) const {
  std::vector<Due> all;
  for (const Tenant* tenant : domain.tenants) {
    const Row& its = rows_[*tenant];
    all.push_back({.share = 0, .due = its.stake.competes ? 1 : its.due});
  }
  const auto divide_among = [&](auto is_meant, auto take) {
    std::vector<Claims> competing;
    std::vector<Due*> theirs;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Tenant& tenant = *domain.tenants[i];
      if (!rows_[tenant].stake.competes || !is_meant(tenant)) continue;
      competing.push_back(limits_.claims(tenant));
      theirs.push_back(&all[i]);
    }
    const std::vector<double> parts = shares(domain.rules.policy->rules().entitlement, competing);
    for (std::size_t i = 0; i < parts.size(); ++i) take(*theirs[i], parts[i]);
  };
  const bool alone = domain.gpus.size() == 1;
  divide_among([](const Tenant&) { return true; },
               [&](Due& its, double part) {
                 its.share = part;
                 if (alone) its.due = part;
               });
  if (alone) return all;
  for (const Gpu* gpu : domain.gpus)
    divide_among([gpu](const Tenant& tenant) { return uses(tenant, *gpu); },
                 [](Due& its, double part) { its.due = std::min(its.due, part); });
  return all;
}

void Accounts::sum_due_to_holders(const Domain& domain) {
  for (const Gpu* gpu : domain.gpus) due_to_holders_[*gpu] = 0;
  for (const Gpu* gpu : domain.gpus)
    for (const Tenant* tenant : domain.tenants)
      if (rows_[*tenant].stake.holds && uses(*tenant, *gpu)) due_to_holders_[*gpu] += rows_[*tenant].due;
}

ActivityInterval Accounts::activity_of(const Tenant& tenant, const ActivityInterval& common) const {
  const Row& its = rows_[tenant];
  const Phase phase = turns_.phase_of(tenant);
  const bool contended = common.share > 0;
  ActivityInterval activity = common;
  activity.pauses = phase == Phase::out && !turns_.wants(tenant);
  activity.comes_in = contended && phase == Phase::entering;
  activity.pays = contended && its.stake.holds;
  activity.overuses = activity.pays && phase == Phase::leaving;
  activity.due = its.stake.competes || activity.pauses ? its.due : 0;
  activity.share = common.share * its.share;
  activity.holds = its.stake.holds;
  activity.limit = limits_.claims(tenant).limit;
  if (!activity.holds) return activity;
  activity.due_to_holders = 1;
  for (const Session* session : tenant.sessions)
    if (attached(session))
      activity.due_to_holders = std::min(activity.due_to_holders, due_to_holders_[*session->gpu]);
  return activity;
}

void Accounts::update(const Domain& domain, const Common& common) {
  bool changed = common.shares_changed;
  unsigned entering = 0;
  unsigned leases = 0;
  for (const Tenant* tenant : domain.tenants) {
    Row& its = rows_[*tenant];
    const Stake before = std::exchange(its.stake, stake_of(*tenant));
    changed = changed || its.stake.competes != before.competes;
    entering += its.stake.enters ? 1 : 0;
    leases += its.stake.holds ? 1 : 0;
  }
  if (changed) {
    const std::vector<Due> parts = divide(domain);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      rows_[*domain.tenants[i]].share = parts[i].share;
      rows_[*domain.tenants[i]].due = parts[i].due;
    }
  }
  sum_due_to_holders(domain);
  const ActivityInterval shared{.sets = common.sets,
                                .turn = common.turn,
                                .holders = entering + leases,
                                .share = common.contended ? 1.0 : 0.0,
                                .counted = common.counted,
                                .leases = leases};
  for (const Tenant* tenant : domain.tenants) {
    Row& its = rows_[*tenant];
    const ActivityInterval activity = activity_of(*tenant, shared);
    if (activity == its.activity) continue;
    bring_up_to_date(its);
    its.activity = activity;
    its.balance = lag_after(its.policy->rules().account, its.balance, activity, {});
  }
}

}  // namespace sharedgpu
