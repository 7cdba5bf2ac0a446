// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/figure_book.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {
namespace {

// A session counts for its step and for its tenant as a whole. Outside of Slurm, a session has no step, and
// counts only for its tenant.
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

void FigureBook::add_exchanges(TenantId tenant, StepName step, const Exchanges& more) {
  if (more == Exchanges{}) return;
  for (const Key& key : keys_of(tenant, step)) {
    Exchanges& exchanges = figures_[key].exchanges;
    if (std::exchange(exchanges, exchanges + more) != exchanges) changed_.insert(key);
  }
}

bool FigureBook::note_host(TenantId tenant, Bytes peak) {
  const Key key{tenant, StepName{}};
  if (peak <= of(tenant).host) return false;
  figures_[key].host = peak;
  return true;
}

// Adds the time since `watch.counted` to the figures that grow with time.
void FigureBook::add_time(const Sighting::Tenant& state, const Watch& watch, Nanoseconds now,
                          Figures& figures) {
  if (now <= watch.counted) return;
  if (state.may_wait && watch.wanting > 0) figures.waited += now - watch.counted;
  if (state.enters) figures.entering += now - watch.counted;
  if (state.evicts) figures.evicting += now - watch.counted;
  if (state.leaves)
    figures.overuse += std::max(now - std::max(watch.counted, state.turn_ends), Nanoseconds{});
}

void FigureBook::count(TenantId tenant, const Watched& watched, StepName step, Watch& watch,
                       Nanoseconds now) {
  const Sighting::Tenant& state = watched.state;
  const bool grows = state.leaves || state.enters || state.evicts || (state.may_wait && watch.wanting > 0);
  if (grows) add_time(state, watch, now, figures_[{tenant, step}]);
  watch.counted = now;
}

void FigureBook::count_all(Nanoseconds now) {
  for (auto& [tenant, watched] : watched_)
    for (auto& [step, watch] : watched.steps) count(tenant, watched, step, watch, now);
}

// Takes in the changes of all sessions before it records maxima. In between, the sums of a step may be too
// large: memory that one session freed and another session allocated would count twice.
void FigureBook::observe(const Sighting& seen, Nanoseconds now) {
  looked_ = now;
  if (seen.whole) drop_gone(seen.sessions, now);
  std::vector<const Sighting::Session*> changed;
  for (const Sighting::Session& session : seen.sessions)
    if (look_at(session, now)) changed.push_back(&session);
  for (const Sighting::Tenant& tenant : seen.tenants) look_at(tenant, now);
  for (const Sighting::Session* session : changed) note_maxima(*session);
}

void FigureBook::drop_gone(const std::vector<Sighting::Session>& left, Nanoseconds now) {
  auto next = left.begin();
  std::erase_if(sessions_, [&](const auto& entry) {
    while (next != left.end() && next->id < entry.first) ++next;
    if (next != left.end() && next->id == entry.first) return false;
    take_out(entry.second, now);
    return true;
  });
}

// Returns true if the session is new or has changed since the last observation.
bool FigureBook::look_at(const Sighting::Session& session, Nanoseconds now) {
  const auto [entry, is_new] = sessions_.try_emplace(session.id, session);
  if (!is_new && entry->second == session) return false;
  Watched& watched = watched_[session.tenant];
  for (const auto& [tenant, step] : keys_of(session.tenant, session.step)) {
    Watch& watch = watched.steps[step];
    count(tenant, watched, step, watch, now);
    ++watch.sessions;
    watch.wanting += session.wants ? 1 : 0;
    watch.footprint += session.footprint;
    watch.resident += session.resident;
  }
  if (!is_new) take_out(std::exchange(entry->second, session), now);
  return true;
}

// When the last session of a step ends, lets the next take_news() return the changed figures at once.
void FigureBook::take_out(const Sighting::Session& session, Nanoseconds now) {
  const auto found = watched_.find(session.tenant);
  for (const Key& key : keys_of(session.tenant, session.step)) {
    Watch& watch = found->second.steps.at(key.second);
    count(key.first, found->second, key.second, watch, now);
    --watch.sessions;
    watch.wanting -= session.wants ? 1 : 0;
    watch.footprint = minus(watch.footprint, session.footprint);
    watch.resident = minus(watch.resident, session.resident);
    if (watch.sessions > 0) continue;
    found->second.steps.erase(key.second);
    changed_.insert(key);
    due_ = true;
  }
  if (found->second.steps.empty()) watched_.erase(found);
}

void FigureBook::look_at(const Sighting::Tenant& tenant, Nanoseconds now) {
  const auto found = watched_.find(tenant.id);
  if (found == watched_.end() || found->second.state == tenant) return;
  Watched& watched = found->second;
  const bool left = watched.state.leaves && !tenant.leaves;
  const bool evicted = watched.state.evicts && !tenant.evicts;
  for (auto& [step, watch] : watched.steps) {
    count(tenant.id, watched, step, watch, now);
    if (!left && !evicted) continue;
    if (left) ++figures_[{tenant.id, step}].handoffs;
    changed_.insert({tenant.id, step});
    due_ = true;
  }
  watched.state = tenant;
}

void FigureBook::note_maxima(const Sighting::Session& session) {
  const Watched& watched = watched_.at(session.tenant);
  for (const Key& key : keys_of(session.tenant, session.step)) {
    const Watch& watch = watched.steps.at(key.second);
    Figures& figures = figures_[key];
    figures.footprint = std::max(figures.footprint, watch.footprint);
    figures.resident = std::max(figures.resident, watch.resident);
  }
}

void FigureBook::hasten() {
  energy_.hasten();
  for (const auto& [tenant, watched] : watched_)
    for (const auto& [step, watch] : watched.steps) changed_.insert({tenant, step});
  due_ = true;
}

std::vector<std::pair<FigureBook::Key, Figures>> FigureBook::take_news(Nanoseconds now) {
  constexpr Nanoseconds kPause = std::chrono::seconds(1);
  constexpr Nanoseconds kLongest = std::chrono::seconds(15);  // a crash loses about the growth of this time
  if (swept_ == Nanoseconds{}) swept_ = now;
  if (now - swept_ >= kLongest) {
    swept_ = now;
    count_all(looked_);
    for (const auto& [tenant, watched] : watched_)
      for (const auto& [step, watch] : watched.steps)
        if (const Key key{tenant, step}; figures_[key] != written_[key]) changed_.insert(key);
  }
  if (changed_.empty() || (!due_ && now - told_ < kPause)) return {};
  due_ = false;
  told_ = now;
  std::vector<std::pair<Key, Figures>> news;
  for (const Key& key : std::exchange(changed_, {}))
    if (figures_.count(key) > 0) written_[key] = news.emplace_back(key, of(key.first, key.second)).second;
  return news;
}

Figures FigureBook::of(TenantId tenant, StepName step, Nanoseconds now) const {
  const auto entry = figures_.find({tenant, step});
  Figures figures = entry == figures_.end() ? Figures{} : entry->second;
  const auto watched = watched_.find(tenant);
  if (watched == watched_.end()) return figures;
  if (const auto watch = watched->second.steps.find(step); watch != watched->second.steps.end())
    add_time(watched->second.state, watch->second, std::max(now, looked_), figures);
  return figures;
}

void FigureBook::forget(TenantId tenant) {
  energy_.forget(tenant);
  const auto first = figures_.lower_bound({tenant, StepName{}});
  const auto last = figures_.lower_bound({TenantId{tenant.value + 1}, StepName{}});
  for (auto it = first; it != last; ++it) {
    changed_.erase(it->first);
    written_.erase(it->first);
  }
  figures_.erase(first, last);
  watched_.erase(tenant);
  std::erase_if(sessions_, [tenant](const auto& entry) { return entry.second.tenant == tenant; });
}

}  // namespace sharedgpu
