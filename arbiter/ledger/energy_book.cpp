// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/energy_book.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace sharedgpu {
namespace {

// Limits the result, since a damaged ledger may have any number.
Energy rounded(double millijoules) {
  constexpr double kMost = 9e18;
  return {static_cast<std::uint64_t>(std::llround(std::min(millijoules, kMost)))};
}

double ratio(Nanoseconds part, Nanoseconds whole) {
  return static_cast<double>(part.count()) / static_cast<double>(whole.count());
}

// Returns false if the counter has not changed, or shows more energy than a GPU can consume in the time
// `passed`. A lower value means that the counter has begun anew in this time.
bool is_progress(Energy before, Energy counter, Nanoseconds passed) {
  constexpr double kMostPower = 10'000;  // watts, which are also millijoules per millisecond
  const double most = kMostPower * std::chrono::duration<double, std::milli>(passed).count();
  const std::uint64_t consumed = counter.millijoules - (counter < before ? 0 : before.millijoules);
  return counter != before && static_cast<double>(consumed) <= most;
}

}  // namespace

// Divides the time from `meter.counted` to `at` equally among the tenants that hold leases on the GPU. Does
// nothing if `at` is not later than `meter.counted`. `at` is earlier if a lease is ended late: `at` is then
// the last time at which the lease was surely held.
void EnergyBook::count(Meter& meter, Nanoseconds at) {
  if (at <= meter.counted) return;
  const Nanoseconds passed = at - meter.counted;
  meter.counted = at;
  if (!meter.reading) return;
  for (const auto& [tenant, leases] : meter.holders)
    meter.shares[tenant] += passed / static_cast<Nanoseconds::rep>(meter.holders.size());
}

void EnergyBook::carry(const Key& key, Energy energy) {
  energies_[key] = static_cast<double>(energy.millijoules);
  written_[key] = energy;
}

void EnergyBook::grant(const Key& key, Nanoseconds at) {
  Meter& meter = meters_[key.second];
  count(meter, at);
  ++meter.holders[key.first];
}

void EnergyBook::release(const Key& key, Nanoseconds at) {
  const auto found = meters_.find(key.second);
  if (found == meters_.end()) return;
  Meter& meter = found->second;
  count(meter, at);
  const auto holder = meter.holders.find(key.first);
  if (holder != meter.holders.end() && --holder->second == 0) meter.holders.erase(holder);
  // Drops a GPU that NVML has not shown, since sessions may name any number of GPUs that do not exist.
  if (meter.holders.empty() && !meter.reading) meters_.erase(found);
}

void EnergyBook::read(const GpuUuid& gpu, Energy counter, Nanoseconds at) {
  Meter& meter = meters_[gpu];
  count(meter, at);
  if (meter.reading && !is_progress(*meter.reading, counter, at - meter.read)) return;
  const std::map<TenantId, Nanoseconds> shares = std::exchange(meter.shares, {});
  const std::optional<Energy> before = std::exchange(meter.reading, counter);
  const Nanoseconds passed = at - std::exchange(meter.read, at);
  if (!before || counter < *before) return;
  const auto consumed = static_cast<double>(counter.millijoules - before->millijoules);
  double left = consumed;
  for (const auto& [tenant, share] : shares) {
    const double part = std::min(consumed * ratio(share, passed), left);
    energies_[{tenant, gpu}] += part;
    left -= part;
  }
  meter.unleased += left;
}

std::vector<std::pair<EnergyBook::Key, Energy>> EnergyBook::take_news(Nanoseconds now) {
  constexpr Nanoseconds kPause = std::chrono::seconds(15);
  if (!due_ && now - told_ < kPause) return {};
  due_ = false;
  told_ = now;
  std::vector<std::pair<Key, Energy>> news;
  for (const auto& [key, energy] : energies_)
    if (const Energy whole = rounded(energy); whole != written_[key])
      news.emplace_back(key, written_[key] = whole);
  return news;
}

void EnergyBook::forget(TenantId tenant) {
  const Key first{tenant, GpuUuid{}};
  const Key next{TenantId{tenant.value + 1}, GpuUuid{}};
  energies_.erase(energies_.lower_bound(first), energies_.lower_bound(next));
  written_.erase(written_.lower_bound(first), written_.lower_bound(next));
  for (auto& [gpu, meter] : meters_) meter.shares.erase(tenant);
}

Energy EnergyBook::of(const Key& key) const {
  const auto found = energies_.find(key);
  return found == energies_.end() ? Energy{} : rounded(found->second);
}

std::map<GpuUuid, Energy> EnergyBook::of(TenantId tenant) const {
  std::map<GpuUuid, Energy> its;
  for (auto it = energies_.lower_bound({tenant, GpuUuid{}});
       it != energies_.end() && it->first.first == tenant; ++it)
    its[it->first.second] = rounded(it->second);
  return its;
}

Energy EnergyBook::unleased(const GpuUuid& gpu) const {
  const auto found = meters_.find(gpu);
  return found == meters_.end() ? Energy{} : rounded(found->second.unleased);
}

std::map<EnergyBook::Key, Energy> EnergyBook::all() const {
  std::map<Key, Energy> all;
  for (const auto& [key, energy] : energies_) all[key] = rounded(energy);
  return all;
}

}  // namespace sharedgpu
