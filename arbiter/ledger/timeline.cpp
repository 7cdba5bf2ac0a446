// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/timeline.h"

#include <algorithm>

namespace sharedgpu {
namespace {

// A record of totals may divide a span in two. put() joins two such spans of the same tenant and kind if the
// gap between them is shorter than this. It does not join leases.
constexpr Nanoseconds kSeam = std::chrono::milliseconds(1);

}  // namespace

// Leases end when the host reboots, so only totals are carried over to the new boot.
void Timeline::on_boot(const BootRecord& boot, bool rebooted) {
  booted_ = boot.booted;
  if (!rebooted) return;
  for (auto& [tenant, window] : windows_)
    window = {.began = {}, .held = {}, .open = {}, .held_since = {}, .totals = window.totals};
}

void Timeline::on_tenant(const TenantRecord& tenant, Nanoseconds at) {
  Who& who = tenants_[tenant.tenant];
  who.name = tenant.name;
  who.uid = tenant.uid;
  windows_.try_emplace(tenant.tenant).first->second.began = at;
}

void Timeline::on_class(const ClassRecord& job) { tenants_[job.tenant].element = job.element; }

void Timeline::on_begin(const BeginRecord& begin) { windows_[begin.tenant].totals = {}; }

void Timeline::on_session(const SessionRecord& session, Nanoseconds) {
  sessions_[session.session] = session.tenant;
}

void Timeline::on_attach(const AttachRecord& attach) {
  if (const auto session = sessions_.find(attach.session); session != sessions_.end())
    tenants_[session->second].gpus.insert(attach.gpu);
}

void Timeline::on_gone(const GoneRecord& gone) { sessions_.erase(gone.session); }

void Timeline::on_grant(const LeaseKey& key, const OpenLease& lease) {
  Window& window = windows_[key.tenant];
  tenants_[key.tenant].gpus.insert(key.gpu);
  if (window.open.empty()) window.held_since = lease.since;
  const auto [open, is_new] = window.open.try_emplace(key.gpu, 0u, lease.since);
  ++open->second.first;
}

void Timeline::on_release(const LeaseKey& key, const OpenLease&, Nanoseconds at) {
  Window& window = windows_[key.tenant];
  const auto open = window.open.find(key.gpu);
  if (open == window.open.end() || --open->second.first > 0) return;
  put(SpanKind::lease, key.tenant, {open->second.second, at}, key.gpu);
  window.open.erase(open);
  if (window.open.empty()) window.held.push_back({window.held_since, at});
}

// Distributes the growth of the totals since the tenant's last record over the time since that record.
void Timeline::on_used(const UsedRecord& used, Nanoseconds at) {
  if (used.step != StepName{}) return;  // the tenant's totals include those of the step
  tenants_.try_emplace(used.tenant);
  Window& window = windows_[used.tenant];
  std::vector<Interval> held = window.held;
  const bool holds = !window.open.empty();
  if (holds) held.push_back({window.held_since, at});
  std::vector<Interval> gaps;
  Nanoseconds from = window.began;
  for (const Interval& lease : held) {
    if (lease.from > from) gaps.push_back({from, lease.from});
    from = std::max(from, lease.to);
  }
  if (at > from) gaps.push_back({from, at});

  const Figures& now = used.figures;
  const Figures& before = window.totals;
  put_at_ends(SpanKind::waiting, used.tenant, gaps, now.waited - before.waited);
  put_at_ends(SpanKind::entering, used.tenant, gaps, now.entering - before.entering);
  put_at_ends(SpanKind::evicting, used.tenant, {{window.began, at}}, now.evicting - before.evicting);
  put_at_ends(SpanKind::overuse, used.tenant, held, now.overuse - before.overuse);
  window.totals = now;
  window.held.clear();
  window.began = at;
  if (holds) window.held_since = std::max(window.held_since, at);
}

// Puts a span of length `time` at the end of the last interval in `places`. The part that does not fit goes
// to the end of the interval before that one, and so on.
void Timeline::put_at_ends(SpanKind kind, TenantId tenant, const std::vector<Interval>& places,
                           Nanoseconds time) {
  std::vector<Interval> found;
  for (auto place = places.rbegin(); place != places.rend() && time > Nanoseconds{}; ++place) {
    const Nanoseconds part = std::min(time, place->to - place->from);
    if (part > Nanoseconds{}) found.push_back({place->to - part, place->to});
    time -= std::max(part, Nanoseconds{});
  }
  for (auto when = found.rbegin(); when != found.rend(); ++when) put(kind, tenant, *when);
}

void Timeline::put(SpanKind kind, TenantId tenant, Interval when, const GpuUuid& gpu) {
  when = {booted_ + when.from, booted_ + std::max(when.from, when.to)};
  const auto latest = latest_.find({tenant, kind});
  if (kind != SpanKind::lease && latest != latest_.end()) {
    Span& last = closed_[latest->second];
    if (when.from >= last.from && when.from - last.to < kSeam) {
      last.to = std::max(last.to, when.to);
      return;
    }
  }
  latest_[{tenant, kind}] = closed_.size();
  closed_.push_back(
      {.kind = kind, .tenant = tenant, .gpu = gpu, .from = when.from, .to = when.to, .open = false});
}

std::vector<Span> Timeline::spans() const {
  std::vector<Span> all = closed_;
  for (const auto& [tenant, window] : windows_)
    for (const auto& [gpu, open] : window.open)
      all.push_back({.kind = SpanKind::lease,
                     .tenant = tenant,
                     .gpu = gpu,
                     .from = booted_ + open.second,
                     .to = booted_ + std::max(open.second, reader_.last_record()),
                     .open = true});
  std::stable_sort(all.begin(), all.end(), [](const Span& a, const Span& b) { return a.from < b.from; });
  return all;
}

std::vector<Span> within(const std::vector<Span>& spans, Nanoseconds since, Nanoseconds until) {
  std::vector<Span> parts;
  for (Span span : spans) {
    if (span.to < since || span.from >= until) continue;
    span.open = span.open && span.to < until;
    span.from = std::max(span.from, since);
    span.to = std::min(span.to, until);
    parts.push_back(span);
  }
  return parts;
}

}  // namespace sharedgpu
