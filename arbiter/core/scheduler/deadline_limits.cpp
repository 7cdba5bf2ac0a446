// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/scheduler/deadline_limits.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kLeastTimeout{10};
constexpr std::chrono::seconds kMostTimeout{60};
constexpr int kMostSilent = 3;  // a tenant limits no other if it has reported nothing for this many
                                // deadlines, see timeout_of()
constexpr double kDecrease = 0.5;
constexpr double kIncrease = 0.01;
constexpr double kLeast = 0.05;

Nanoseconds timeout_of(const Tenant& tenant) {
  return std::clamp<Nanoseconds>(kMostSilent * tenant.stated.deadline, kLeastTimeout, kMostTimeout);
}

Claims bounded(const Claims& stated, double part) {
  Claims claims = stated;
  claims.limit = std::min(stated.limit, part);
  claims.request = std::min(stated.request, claims.limit);
  return claims;
}

}  // namespace

double part_after(const EntitlementRules& rules, double part, const Claims& stated,
                  const DeadlinesSeen& seen) {
  if (!rules.deadlines) return stated.limit;
  const double least = std::min(std::max(kLeast, stated.request), stated.limit);
  const double lowered = std::max(part * std::pow(kDecrease, static_cast<double>(seen.missed)), least);
  return std::clamp(lowered + kIncrease * static_cast<double>(seen.met), least, stated.limit);
}

void DeadlineLimits::restate(const Tenant& tenant, const Claims& stated, const Policy& policy) {
  Claims& claims = tenants_[tenant].claims;
  const double part = claims.limit < tenant.stated.limit ? claims.limit : stated.limit;
  claims = bounded(stated, part_after(policy.rules().entitlement, part, stated, {}));
}

bool DeadlineLimits::report(const Tenant& tenant, const DeadlinesSeen& seen) {
  if (tenant.stated.deadline == Nanoseconds{} || seen.met + seen.missed == 0) return false;
  Row& its = tenants_[tenant];
  its.met += seen.met;
  its.missed += seen.missed;
  const bool ran =
      turns_.leases().holds(tenant.id) || turns_.last_ran(tenant) > its.reported.value_or(Nanoseconds{});
  if (ran) its.reported = effects_.now();
  return ran;
}

bool DeadlineLimits::apply(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen) {
  hold_until_[domain] = {};
  if (domain.rules.by_threads) {
    bound_threads(domain, reporter, seen);
    return false;
  }
  bool changed = false;
  for (const Tenant* other : domain.tenants) {
    if (other->stated.priority >= reporter.stated.priority) continue;
    const double part = claims(*other).limit;
    const EntitlementRules& rules = domain.rules.policy->rules().entitlement;
    changed = bound(*other, part_after(rules, part, other->stated, seen)) || changed;
  }
  return changed;
}

// If several tenants report deadlines, only the reports of the tenant with the highest priority count.
void DeadlineLimits::bound_threads(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen) {
  for (const Gpu* gpu : domain.gpus) {
    Threads& its = threads_[*gpu];
    if (reporter.stated.priority < its.below) continue;
    its.below = reporter.stated.priority;
    its.part = part_after(domain.rules.policy->rules().entitlement, its.part, {}, seen);
  }
}

bool DeadlineLimits::bound(const Tenant& tenant, double part) {
  const Claims claims = bounded(tenant.stated, part);
  if (claims == tenants_[tenant].claims) return false;
  tenants_[tenant].claims = claims;
  return true;
}

bool DeadlineLimits::bounds_others(const Tenant& tenant) const {
  const auto& reported = tenants_[tenant].reported;
  return reported && effects_.now() < *reported + timeout_of(tenant);
}

bool DeadlineLimits::lift(const Domain& domain) {
  Nanoseconds& until = hold_until_[domain];
  bool changed = false;
  if (effects_.now() >= until) {
    until = Nanoseconds::max();
    std::optional<std::int32_t> highest;
    for (const Tenant* tenant : domain.tenants) {
      if (!bounds_others(*tenant)) continue;
      highest = std::max(highest.value_or(tenant->stated.priority), tenant->stated.priority);
      until = std::min(until, *tenants_[*tenant].reported + timeout_of(*tenant));
    }
    for (const Gpu* gpu : domain.gpus)
      if (!domain.rules.by_threads || !(highest >= threads_[*gpu].below)) threads_[*gpu] = {};
    for (const Tenant* tenant : domain.tenants)
      if (claims(*tenant).limit < tenant->stated.limit &&
          (domain.rules.by_threads || !(highest > tenant->stated.priority)))
        changed = bound(*tenant, tenant->stated.limit) || changed;
  }
  if (until != Nanoseconds::max()) effects_.wake_at(until);
  return changed;
}

}  // namespace sharedgpu
