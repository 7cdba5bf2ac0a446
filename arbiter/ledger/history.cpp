// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/history.h"

#include <algorithm>

namespace sharedgpu {

void History::add(const Record& record) {
  if (const auto* boot = std::get_if<BootRecord>(&record.what)) {
    if (boot->boot_id != boot_.boot_id) {
      end_boot();
      last_ = {};
    }
    boot_ = *boot;
  } else if (const auto* tenant = std::get_if<TenantRecord>(&record.what)) {
    tenants.restore(tenant->tenant, tenant->name, tenant->uid);
    touched_[tenant->tenant] = record.at;
  } else if (const auto* options = std::get_if<OptionsRecord>(&record.what)) {
    if (TenantInfo* info = tenants.find(options->tenant)) {
      info->options = options->options;
      info->over = false;
    }
    touched_[options->tenant] = record.at;
  } else if (const auto* in = std::get_if<ClassRecord>(&record.what)) {
    if (TenantInfo* info = tenants.find(in->tenant)) info->job_class = in->job_class;
  } else if (const auto* over = std::get_if<OverRecord>(&record.what)) {
    if (TenantInfo* info = tenants.find(over->tenant)) info->over = true;
  } else if (const auto* end = std::get_if<EndRecord>(&record.what)) {
    tenants.forget(end->tenant);
    recovered.leases.forget(end->tenant);
    figures.forget(end->tenant);
    recovered.placements.erase(end->tenant);
    keepers.erase(end->tenant);
    touched_.erase(end->tenant);
  } else if (const auto* place = std::get_if<PlaceRecord>(&record.what)) {
    const GpuList& gpus = place->gpus;
    if (gpus.count > 0)
      recovered.placements[place->tenant] = {.units = place->units,
                                             .gpus = {gpus.gpu, gpus.gpu + gpus.count}};
    keepers[place->tenant].insert({.pid = place->pid, .started = place->started});
  } else if (const auto* session = std::get_if<SessionRecord>(&record.what)) {
    sessions_[session->session].record = *session;
    touched_[session->tenant] = record.at;
    last_session = std::max(last_session, session->session);
  } else if (const auto* attach = std::get_if<AttachRecord>(&record.what)) {
    auto past = sessions_.find(attach->session);
    if (past != sessions_.end()) past->second.gpu = attach->gpu;
  } else if (const auto* gone = std::get_if<GoneRecord>(&record.what)) {
    sessions_.erase(gone->session);
  } else if (const auto* lease = std::get_if<LeaseRecord>(&record.what)) {
    recovered.last_epoch = std::max(recovered.last_epoch, lease->epoch);
    if (lease->grant)
      grant(*lease, record.at);
    else
      recovered.leases.release(lease->key, record.at);
    touched_[lease->key.tenant] = record.at;
  } else if (const auto* checkpoint = std::get_if<CheckpointRecord>(&record.what)) {
    tenants.skip_to(checkpoint->tenant);
    last_session = std::max(last_session, checkpoint->session);
    recovered.last_epoch = std::max(recovered.last_epoch, checkpoint->epoch);
  } else if (const auto* step = std::get_if<StepTimeRecord>(&record.what)) {
    recovered.leases.carry(step->tenant, step->step, step->time);
    touched_[step->tenant] = record.at;
  } else if (const auto* gpu = std::get_if<GpuTimeRecord>(&record.what)) {
    recovered.leases.carry(gpu->tenant, gpu->gpu, gpu->time);
  } else if (const auto* used = std::get_if<UsedRecord>(&record.what)) {
    figures.carry({used->tenant, used->step}, used->figures);
    touched_[used->tenant] = record.at;
  } else if (const auto* begin = std::get_if<BeginRecord>(&record.what)) {
    recovered.leases.forget(begin->tenant);
    figures.forget(begin->tenant);
  }
  if (std::holds_alternative<LostRecord>(record.what) && !lost_) lost_ = last_;
  if (std::holds_alternative<CompleteRecord>(record.what)) lost_.reset();
  last_ = std::max(last_, record.at);  // checkpoints tell of older times
}

// Where another turn's lease is open still, its release was lost.
void History::grant(const LeaseRecord& lease, Nanoseconds at) {
  const auto open = recovered.leases.open(lease.key);
  if (open && open->epoch != lease.epoch)
    recovered.leases.release(lease.key, std::min(lost_.value_or(last_), at));
  recovered.leases.grant(lease.key, lease.epoch, at);
}

// Tenants that are there, or may come again, or whose times may be asked for. A job may pause between steps;
// one that has a step is kept by its slurmstepd. Where the host was booted since, its steps have ended.
std::set<TenantId> History::that_may_come() const {
  constexpr auto kLongestPause = std::chrono::hours(24 * 7);
  std::set<TenantId> ids;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job()) ids.insert(id);
  for (const auto& [id, at] : touched_)
    if (last_ - at <= kLongestPause) ids.insert(id);
  for (const auto& [session, past] : sessions_) ids.insert(past.record.tenant);
  for (const auto& [key, lease] : recovered.leases.open()) ids.insert(key.tenant);
  for (const auto& [id, processes] : keepers) ids.insert(id);
  return ids;
}

std::vector<Record> History::checkpoint(StartTimeOf starts) {
  keep_placements(starts);
  const std::set<TenantId> kept = that_may_come();
  std::vector<TenantId> over;
  for (const auto& [id, tenant] : tenants.all())
    if (kept.count(id) == 0) over.push_back(id);
  for (TenantId id : over) {
    tenants.forget(id);
    recovered.leases.forget(id);
    figures.forget(id);
    touched_.erase(id);
  }
  std::vector<Record> records;
  auto add = [&](Nanoseconds at, auto what) { records.push_back({.at = at, .what = std::move(what)}); };
  add(last_,
      CheckpointRecord{.tenant = tenants.last(), .session = last_session, .epoch = recovered.last_epoch});
  if (!boot_.boot_id.empty()) add(last_, boot_);
  for (const auto& [id, tenant] : tenants.all()) {
    const auto touched = touched_.find(id);
    const Nanoseconds at = touched == touched_.end() ? last_ : touched->second;
    add(at, TenantRecord{.tenant = id, .name = tenant.name, .uid = tenant.uid});
    add(at, OptionsRecord{.tenant = id, .options = tenant.options});
    if (tenant.over) add(at, OverRecord{.tenant = id});
    if (tenant.job_class != JobClass{}) add(at, ClassRecord{.tenant = id, .job_class = tenant.job_class});
    const LeaseBook::Closed closed = recovered.leases.closed_of(id);
    for (const auto& [step, time] : closed.steps)
      add(at, StepTimeRecord{.tenant = id, .step = step, .time = time});
    for (const auto& [gpu, time] : closed.gpus)
      add(at, GpuTimeRecord{.tenant = id, .gpu = gpu, .time = time});
  }
  for (const auto& [key, value] : figures.all()) {
    const auto touched = touched_.find(key.first);
    add(touched == touched_.end() ? last_ : touched->second,
        UsedRecord{.tenant = key.first, .step = key.second, .figures = value});
  }
  for (const auto& [id, processes] : keepers) {
    PlaceRecord place{.tenant = id, .units = 0, .gpus = {}};
    if (const auto placed = recovered.placements.find(id); placed != recovered.placements.end()) {
      place.units = placed->second.units;
      for (const GpuUuid& gpu : placed->second.gpus) place.gpus.gpu[place.gpus.count++] = gpu;
    }
    for (const ProcessName& each : processes) {
      place.pid = each.pid;
      place.started = each.started;
      add(last_, place);
    }
  }
  for (const auto& [id, past] : sessions_) {
    add(last_, past.record);
    if (past.attached()) add(last_, AttachRecord{.session = id, .gpu = past.gpu});
  }
  // Oldest first: the time of a tenant on a GPU goes on with the first.
  std::multimap<Nanoseconds, LeaseRecord> open;
  for (const auto& [key, lease] : recovered.leases.open())
    open.emplace(lease.since, LeaseRecord{.grant = true, .epoch = lease.epoch, .key = key});
  for (const auto& [since, lease] : open) add(since, lease);
  add(last_, CompleteRecord{});
  return records;
}

// The host went down: whatever was held then ended, as far as is known, with the last record of that boot.
void History::end_boot() {
  while (!recovered.leases.open().empty()) {
    LeaseKey key = recovered.leases.open().begin()->first;
    recovered.leases.release(key, last_);
  }
  lost_.reset();
  sessions_.clear();
  recovered.placements.clear();
  keepers.clear();
  touched_.clear();
  std::vector<TenantId> ended;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job()) ended.push_back(id);
  for (TenantId id : ended) {
    tenants.forget(id);
    recovered.leases.forget(id);
    figures.forget(id);
  }
}

std::vector<Record> History::finish(const BootRecord& boot, StartTimeOf starts, Nanoseconds now) {
  std::vector<Record> news;
  if (boot.boot_id != boot_.boot_id) end_boot();
  news.push_back(Record{.at = now, .what = boot});
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Past& past = (it++)->second;
    SessionId id = past.record.session;
    if (starts(static_cast<pid_t>(past.record.pid)) == past.record.started) {
      if (past.attached()) ++recovered.expected_sessions;
    } else {
      news.push_back(Record{.at = now, .what = GoneRecord{.session = id}});
      sessions_.erase(id);
    }
  }
  keep_placements(starts);
  recovered.last_record = last_;
  for (const TenantId id : those_over()) {
    news.push_back(Record{.at = now, .what = EndRecord{.tenant = id}});
    add(news.back());
  }
  return news;
}

// Runs and processes of which nothing lives.
std::vector<TenantId> History::those_over() const {
  std::set<TenantId> living;
  for (const auto& [id, past] : sessions_) living.insert(past.record.tenant);
  for (const auto& [id, processes] : keepers) living.insert(id);
  std::vector<TenantId> over;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job() && living.count(id) == 0) over.push_back(id);
  return over;
}

// A placement lasts as long as a process that was told of it, or one that had a session.
void History::keep_placements(StartTimeOf starts) {
  for (const auto& [id, past] : sessions_)
    if (recovered.placements.count(past.record.tenant) > 0)
      keepers[past.record.tenant].insert({.pid = past.record.pid, .started = past.record.started});
  for (auto& [tenant, processes] : keepers)
    std::erase_if(processes, [&](const ProcessName& each) {
      return starts(static_cast<pid_t>(each.pid)) != each.started;
    });
  std::erase_if(keepers, [](const auto& entry) { return entry.second.empty(); });
  std::erase_if(recovered.placements, [this](const auto& entry) { return keepers.count(entry.first) == 0; });
}

History::PastSession History::take_session(std::uint32_t pid, std::uint64_t started, const GpuUuid& gpu) {
  auto best = sessions_.end();
  for (auto it = sessions_.begin(); it != sessions_.end(); ++it) {
    const Past& past = it->second;
    if (past.record.pid != pid || past.record.started != started || !may_be_same(past.gpu, gpu)) continue;
    if (best == sessions_.end() || past.gpu == gpu) best = it;
  }
  if (best == sessions_.end()) return {};
  PastSession taken{.id = best->first, .expected = best->second.attached()};
  sessions_.erase(best);
  return taken;
}

}  // namespace sharedgpu
