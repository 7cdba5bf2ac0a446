// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/figure_book.h"

#include <algorithm>

namespace sharedgpu {
namespace {

// A session counts for its step and for its tenant as a whole. Outside of Slurm these are one.
std::vector<FigureBook::Key> keys_of(TenantId tenant, StepName step) {
  if (step == StepName{}) return {{tenant, step}};
  return {{tenant, StepName{}}, {tenant, step}};
}

}  // namespace

void FigureBook::came(TenantId tenant, StepName step, Backend backend) {
  for (const Key& key : keys_of(tenant, step)) figures_[key].backends |= 1u << static_cast<unsigned>(backend);
}

void FigureBook::add(TenantId tenant, StepName step, Traffic moved) {
  if (moved == Traffic{}) return;
  for (const Key& key : keys_of(tenant, step)) {
    figures_[key].moved = figures_[key].moved + moved;
    changed_.insert(key);
  }
}

Nanoseconds FigureBook::overuse(const Watch& watch, Nanoseconds since, Nanoseconds now) {
  return watch.leaves ? std::max(now - std::max(since, watch.turn_ends), Nanoseconds{}) : Nanoseconds{};
}

void FigureBook::observe(const Snapshot& state, const LeaseBook& leases, Nanoseconds now) {
  const Nanoseconds passed = std::max(now - looked_, Nanoseconds{});
  looked_ = now;
  for (const auto& [key, watch] : watched_) {
    if (watch.waits) figures_[key].waited += passed;
    figures_[key].overuse += overuse(watch, now - passed, now);
  }
  std::map<Key, Watch> seen;
  for (const Snapshot::Session& session : state.sessions) {
    const Snapshot::Tenant& tenant = *state.find(session.tenant);
    for (const Key& key : keys_of(tenant.id, session.step)) {
      Watch& watch = seen[key];
      watch.waits = watch.waits || (session.wants && !tenant.absent && !leases.holds(tenant.id));
      watch.leaves = watch.leaves || (tenant.phase == Phase::leaving && leases.holds(tenant.id));
      watch.turn_ends = tenant.yielded_until;
      watch.footprint += session.use.footprint();
      watch.resident += session.use.resident + minus(session.use.pinned, session.use.settling);
    }
  }
  for (const auto& [key, watch] : seen) {
    Figures& figures = figures_[key];
    figures.footprint = std::max(figures.footprint, watch.footprint);
    figures.resident = std::max(figures.resident, watch.resident);
  }
  for (const auto& [key, before] : watched_) {
    const auto after = seen.find(key);
    const bool gone = after == seen.end();
    const bool left = !gone && before.leaves && !after->second.leaves;
    if (left) ++figures_[key].handoffs;
    if (!gone && !left) continue;
    changed_.insert(key);
    due_ = true;
  }
  watched_ = std::move(seen);
}

void FigureBook::hasten() {
  for (const auto& [key, watch] : watched_) changed_.insert(key);
  due_ = true;
}

std::vector<std::pair<FigureBook::Key, Figures>> FigureBook::take_news(Nanoseconds now) {
  constexpr Nanoseconds kPause = std::chrono::seconds(1);
  constexpr Nanoseconds kLongest = std::chrono::seconds(15);  // so much of what grows a restart may lose
  if (swept_ == Nanoseconds{}) swept_ = now;
  if (now - swept_ >= kLongest) {
    swept_ = now;
    for (const auto& [key, watch] : watched_)
      if (figures_[key] != written_[key]) changed_.insert(key);
  }
  if (changed_.empty() || (!due_ && now - told_ < kPause)) return {};
  due_ = false;
  told_ = now;
  std::vector<std::pair<Key, Figures>> news;
  for (const Key& key : std::exchange(changed_, {}))
    if (const auto entry = figures_.find(key); entry != figures_.end())
      written_[key] = news.emplace_back(*entry).second;
  return news;
}

Figures FigureBook::of(TenantId tenant, StepName step, Nanoseconds now) const {
  const auto entry = figures_.find({tenant, step});
  if (entry == figures_.end()) return {};
  Figures figures = entry->second;
  if (const auto watch = watched_.find({tenant, step}); watch != watched_.end() && now > looked_) {
    if (watch->second.waits) figures.waited += now - looked_;
    figures.overuse += overuse(watch->second, looked_, now);
  }
  return figures;
}

void FigureBook::forget(TenantId tenant) {
  const auto first = figures_.lower_bound({tenant, StepName{}});
  const auto last = figures_.lower_bound({TenantId{tenant.value + 1}, StepName{}});
  for (auto it = first; it != last; ++it) {
    watched_.erase(it->first);
    changed_.erase(it->first);
    written_.erase(it->first);
  }
  figures_.erase(first, last);
}

}  // namespace sharedgpu
