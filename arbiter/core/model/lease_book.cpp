// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/model/lease_book.h"

#include <algorithm>

namespace sharedgpu {
namespace {

// A ledger may have records of two boots of the host, and the clock starts at zero at each boot. Lease time
// must not become negative then.
Nanoseconds between(Nanoseconds from, Nanoseconds to) { return std::max(to - from, Nanoseconds{}); }

Nanoseconds time_of(const OpenLease& lease, Nanoseconds now) {
  return between(lease.since, lease.doubted.value_or(now));
}

}  // namespace

bool LeaseBook::grant(const LeaseKey& key, Epoch epoch, Nanoseconds at) {
  if (!open_.try_emplace(key, OpenLease{.epoch = epoch, .since = at}).second) return false;
  steps_.try_emplace(key.step);
  both_.try_emplace({key.tenant, key.step});
  Union& held = tenants_[{key.tenant, key.gpu}];
  if (held.open++ == 0) held.since = at;
  return true;
}

bool LeaseBook::release(const LeaseKey& key, Nanoseconds at) {
  auto entry = open_.find(key);
  if (entry == open_.end()) return false;
  Nanoseconds time = between(entry->second.since, at);
  open_.erase(entry);
  steps_[key.step] += time;
  both_[{key.tenant, key.step}] += time;
  Union& held = tenants_[{key.tenant, key.gpu}];
  if (--held.open == 0) held.sum += between(held.since, at);
  return true;
}

void LeaseBook::doubt(const LeaseKey& key, Nanoseconds held_at) {
  const auto entry = open_.find(key);
  if (entry != open_.end()) entry->second.doubted = std::max(held_at, entry->second.since);
}

void LeaseBook::confirm(const LeaseKey& key) {
  const auto entry = open_.find(key);
  if (entry != open_.end()) entry->second.doubted.reset();
}

Nanoseconds LeaseBook::of_step(StepName step, Nanoseconds now) const {
  auto closed = steps_.find(step);
  if (closed == steps_.end()) return {};
  Nanoseconds sum = closed->second;
  for (const auto& [key, lease] : open_)
    if (key.step == step) sum += time_of(lease, now);
  return sum;
}

// Returns the latest time at which the tenant is known to have held a lease on the GPU. This is `now` if at
// least one of its open leases on the GPU is not doubted.
Nanoseconds LeaseBook::end_of(TenantId tenant, const GpuUuid& gpu, Nanoseconds now) const {
  Nanoseconds end{};
  for (auto it = open_.lower_bound({.tenant = tenant, .gpu = gpu, .step = {}});
       it != open_.end() && it->first.tenant == tenant && it->first.gpu == gpu; ++it)
    end = std::max(end, it->second.doubted.value_or(now));
  return end;
}

Nanoseconds LeaseBook::of_tenant(TenantId tenant, Nanoseconds now) const {
  Nanoseconds sum{};
  for (auto it = tenants_.lower_bound({tenant, GpuUuid{}}); it != tenants_.end() && it->first.first == tenant;
       ++it)
    sum += it->second.sum + (it->second.open > 0
                                 ? between(it->second.since, end_of(tenant, it->first.second, now))
                                 : Nanoseconds{});
  return sum;
}

std::vector<std::pair<StepName, Nanoseconds>> LeaseBook::steps_of(TenantId tenant, Nanoseconds now) const {
  std::vector<std::pair<StepName, Nanoseconds>> steps;
  for (auto it = both_.lower_bound({tenant, StepName{}}); it != both_.end() && it->first.first == tenant;
       ++it) {
    Nanoseconds sum = it->second;
    for (const auto& [key, lease] : open_)
      if (key.tenant == tenant && key.step == it->first.second) sum += time_of(lease, now);
    steps.emplace_back(it->first.second, sum);
  }
  return steps;
}

std::optional<OpenLease> LeaseBook::open(const LeaseKey& key) const {
  auto entry = open_.find(key);
  return entry == open_.end() ? std::nullopt : std::optional(entry->second);
}

bool LeaseBook::holds(TenantId tenant) const {
  auto entry = open_.lower_bound(LeaseKey{.tenant = tenant, .gpu = {}, .step = {}});
  return entry != open_.end() && entry->first.tenant == tenant;
}

LeaseBook::Closed LeaseBook::closed_of(TenantId tenant) const {
  Closed closed;
  for (auto it = both_.lower_bound({tenant, StepName{}}); it != both_.end() && it->first.first == tenant;
       ++it)
    closed.steps[it->first.second] = it->second;
  for (auto it = tenants_.lower_bound({tenant, GpuUuid{}}); it != tenants_.end() && it->first.first == tenant;
       ++it) {
    Nanoseconds& sum = closed.gpus[it->first.second] = it->second.sum;
    std::optional<Nanoseconds> oldest;
    for (const auto& [key, lease] : open_)
      if (key.tenant == tenant && key.gpu == it->first.second)
        oldest = std::min(lease.since, oldest.value_or(lease.since));
    if (oldest) sum += between(it->second.since, *oldest);
  }
  return closed;
}

// The ledger may have the same record twice, so only the difference to the known time is added.
void LeaseBook::carry(TenantId tenant, StepName step, Nanoseconds time) {
  Nanoseconds& known = both_[{tenant, step}];
  steps_[step] += time - known;
  known = time;
}

void LeaseBook::carry(TenantId tenant, const GpuUuid& gpu, Nanoseconds time) {
  Union& held = tenants_[{tenant, gpu}];
  if (held.open == 0) held.sum = time;
}

void LeaseBook::forget(TenantId tenant) {
  // Uses the order of the keys instead of a search through all entries, since a host may have seen thousands
  // of steps.
  const TenantId next{tenant.value + 1};
  const auto first = both_.lower_bound({tenant, {}});
  const auto last = both_.lower_bound({next, {}});
  for (auto it = first; it != last; ++it) steps_.erase(it->first.second);
  both_.erase(first, last);
  tenants_.erase(tenants_.lower_bound({tenant, {}}), tenants_.lower_bound({next, {}}));
}

}  // namespace sharedgpu
