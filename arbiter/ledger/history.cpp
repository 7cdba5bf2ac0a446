// SPDX-License-Identifier: Apache-2.0
#include "arbiter/ledger/history.h"

#include <algorithm>

namespace sharedgpu {

// If the host was rebooted, the reader has released all leases before this call. Jobs are kept, since their
// totals are still needed.
void History::on_boot(const BootRecord&, bool rebooted) {
  if (rebooted) forget_boot();
}

void History::on_tenant(const TenantRecord& tenant, Nanoseconds at) {
  tenants.restore(tenant.tenant, tenant.name, tenant.uid);
  touched_[tenant.tenant] = at;
}

void History::on_options(const OptionsRecord& options, Nanoseconds at) {
  if (TenantInfo* info = tenants.find(options.tenant)) {
    info->options = options.options;
    info->brought = options.brought;
    info->over = false;
  }
  touched_[options.tenant] = at;
}

void History::on_class(const ClassRecord& job) {
  TenantInfo* info = tenants.find(job.tenant);
  if (info == nullptr) return;
  info->job_class = job.job_class;
  info->element = job.element;
}

void History::on_gang(const GangRecord& gang) {
  if (TenantInfo* info = tenants.find(gang.tenant)) {
    info->nodes = std::max(gang.nodes, 1u);
    info->coordinator = text_of(gang.coordinator);
  }
}

void History::on_group(const GroupRecord& group) {
  if (TenantInfo* info = tenants.find(group.tenant)) info->group_limit = group.limit;
}

// The options of a job's run end with the run: the next run states its own options.
void History::on_over(const OverRecord& over) {
  if (TenantInfo* info = tenants.find(over.tenant)) {
    info->over = true;
    info->options = {};
    info->brought = {};
  }
}

void History::on_end(const EndRecord& end) {
  forget(end.tenant);
  recovered.placements.erase(end.tenant);
  keepers.erase(end.tenant);
}

void History::on_gpu(const GpuRecord& gpu) {
  if (gpu.condition == 0 && gpu.drain == "-")
    gpu_records.erase(gpu.gpu);
  else
    gpu_records[gpu.gpu] = gpu;
}

void History::on_loss(const LossRecord& loss) {
  if (TenantInfo* info = tenants.find(loss.tenant)) info->note_loss(loss.gpu, text_of(loss.fault));
}

void History::on_past_loss(const PastLossRecord& loss) {
  on_loss({.tenant = loss.tenant, .gpu = loss.gpu, .fault = loss.fault});
}

void History::on_place(const PlaceRecord& place) {
  const GpuList& gpus = place.gpus;
  if (gpus.count > 0)
    recovered.placements[place.tenant] = {.units = place.units, .gpus = {gpus.gpu, gpus.gpu + gpus.count}};
  keepers[place.tenant].insert({.pid = place.pid, .started = place.started});
}

void History::on_session(const SessionRecord& session, Nanoseconds at) {
  sessions_[session.session].record = session;
  touched_[session.tenant] = at;
  last_session = std::max(last_session, session.session);
}

void History::on_attach(const AttachRecord& attach) {
  const auto past = sessions_.find(attach.session);
  if (past != sessions_.end()) past->second.gpu = attach.gpu;
}

void History::on_gone(const GoneRecord& gone) { sessions_.erase(gone.session); }

void History::on_grant(const LeaseKey& key, const OpenLease& lease) {
  recovered.leases.grant(key, lease.epoch, lease.since);
  touched_[key.tenant] = lease.since;
}

void History::on_release(const LeaseKey& key, const OpenLease&, Nanoseconds at) {
  recovered.leases.release(key, at);
  touched_[key.tenant] = at;
}

void History::on_step_time(const StepTimeRecord& step, Nanoseconds at) {
  recovered.leases.carry(step.tenant, step.step, step.time);
  touched_[step.tenant] = at;
}

void History::on_gpu_time(const GpuTimeRecord& gpu) { recovered.leases.carry(gpu.tenant, gpu.gpu, gpu.time); }

void History::on_used(const UsedRecord& used, Nanoseconds at) {
  figures.carry({used.tenant, used.step}, used.figures);
  touched_[used.tenant] = at;
}

void History::on_energy(const EnergyRecord& energy) {
  figures.energy().carry({energy.tenant, energy.gpu}, energy.energy);
}

void History::on_begin(const BeginRecord& begin) {
  recovered.leases.forget(begin.tenant);
  figures.forget(begin.tenant);
  if (TenantInfo* info = tenants.find(begin.tenant)) info->losses.clear();
}

void History::on_checkpoint(const CheckpointRecord& checkpoint) {
  tenants.skip_to(checkpoint.tenant);
  last_session = std::max(last_session, checkpoint.session);
}

void History::forget(TenantId tenant) {
  tenants.forget(tenant);
  recovered.leases.forget(tenant);
  figures.forget(tenant);
  touched_.erase(tenant);
}

// After a reboot of the host, no earlier process is alive, and the GPUs have been reset.
void History::forget_boot() {
  for (auto& [uuid, gpu] : gpu_records) {
    gpu.condition = 0;
    gpu.fault = GpuRecord().fault;
  }
  std::erase_if(gpu_records, [](const auto& entry) { return entry.second.drain == "-"; });
  sessions_.clear();
  recovered.placements.clear();
  keepers.clear();
  touched_.clear();
  std::vector<TenantId> ended;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job()) ended.push_back(id);
  for (const TenantId id : ended) forget(id);
}

// Returns the tenants that have a process or may start one. A job may pause between steps. As long as a step
// runs, its slurmstepd counts as a process of the job. Steps from an earlier boot of the host have ended.
std::set<TenantId> History::may_be_asked_for() const {
  std::set<TenantId> ids;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job()) ids.insert(id);
  for (const auto& [id, at] : touched_)
    if (reader_.last_record() - at <= kLongestPause) ids.insert(id);
  for (const auto& [session, past] : sessions_) ids.insert(past.record.tenant);
  for (const auto& [key, lease] : recovered.leases.open()) ids.insert(key.tenant);
  for (const auto& [id, processes] : keepers) ids.insert(id);
  return ids;
}

std::vector<Record> History::checkpoint(StartTimeOf starts) {
  keep_placements(starts);
  const std::set<TenantId> kept = may_be_asked_for();
  std::vector<TenantId> over;
  for (const auto& [id, tenant] : tenants.all())
    if (kept.count(id) == 0) over.push_back(id);
  for (const TenantId id : over) forget(id);
  const Nanoseconds last = reader_.last_record();
  std::vector<Record> records;
  auto add = [&](Nanoseconds at, auto what) { records.push_back({.at = at, .what = std::move(what)}); };
  add(last,
      CheckpointRecord{.tenant = tenants.last(), .session = last_session, .epoch = reader_.last_epoch()});
  if (!reader_.boot().boot_id.empty()) add(last, reader_.boot());
  for (const auto& [uuid, gpu] : gpu_records) add(last, gpu);
  for (const auto& [id, tenant] : tenants.all()) {
    const auto touched = touched_.find(id);
    const Nanoseconds at = touched == touched_.end() ? last : touched->second;
    add(at, TenantRecord{.tenant = id, .name = tenant.name, .uid = tenant.uid});
    // Writes either OverRecord or OptionsRecord, never both. If a crash cut the file off between the two, the
    // job would seem to be in another run.
    if (tenant.over)
      add(at, OverRecord{.tenant = id});
    else
      add(at, OptionsRecord{.tenant = id, .options = tenant.options, .brought = tenant.brought});
    if (tenant.job_class != JobClass{} || tenant.element != ArrayElement{})
      add(at, ClassRecord{.tenant = id, .job_class = tenant.job_class, .element = tenant.element});
    if (tenant.spans_nodes())
      add(at, GangRecord{.tenant = id, .nodes = tenant.nodes, .coordinator = word_of(tenant.coordinator)});
    if (tenant.group_limit != Bytes{}) add(at, GroupRecord{.tenant = id, .limit = tenant.group_limit});
    for (const GpuLoss& loss : tenant.losses)
      add(at, PastLossRecord{.tenant = id, .gpu = loss.gpu, .fault = word_of(loss.fault)});
    const LeaseBook::Closed closed = recovered.leases.closed_of(id);
    for (const auto& [step, time] : closed.steps)
      add(at, StepTimeRecord{.tenant = id, .step = step, .time = time});
    for (const auto& [gpu, time] : closed.gpus)
      add(at, GpuTimeRecord{.tenant = id, .gpu = gpu, .time = time});
  }
  for (const auto& [key, value] : figures.all()) {
    const auto touched = touched_.find(key.first);
    add(touched == touched_.end() ? last : touched->second,
        UsedRecord{.tenant = key.first, .step = key.second, .figures = value});
  }
  for (const auto& [key, energy] : figures.energy().all())
    add(last, EnergyRecord{.tenant = key.first, .gpu = key.second, .energy = energy});
  for (const auto& [id, processes] : keepers) {
    PlaceRecord place{.tenant = id, .units = 0, .gpus = {}};
    if (const auto placed = recovered.placements.find(id); placed != recovered.placements.end()) {
      place.units = placed->second.units;
      for (const GpuUuid& gpu : placed->second.gpus) place.gpus.gpu[place.gpus.count++] = gpu;
    }
    for (const ProcessName& each : processes) {
      place.pid = each.pid;
      place.started = each.started;
      add(last, place);
    }
  }
  for (const auto& [id, past] : sessions_) {
    add(last, past.record);
    if (past.attached()) add(last, AttachRecord{.session = id, .gpu = past.gpu});
  }
  // Writes the oldest lease first, since the tenant's time on a GPU counts from the start of that lease.
  std::multimap<Nanoseconds, LeaseRecord> open;
  for (const auto& [key, lease] : recovered.leases.open())
    open.emplace(lease.since, LeaseRecord{.grant = true, .epoch = lease.epoch, .key = key});
  for (const auto& [since, lease] : open) add(since, lease);
  add(last, CompleteRecord{});
  return records;
}

std::vector<Record> History::finish(const BootRecord& boot, StartTimeOf starts, Nanoseconds now) {
  std::vector<Record> news;
  // If the boot id cannot be read, assumes that the host has not rebooted. The start time of a process shows
  // whether its pid now belongs to another process.
  const bool is_read = !boot.boot_id.empty();
  if (is_read && boot.boot_id != reader_.boot().boot_id) {
    reader_.end_boot(*this);
    forget_boot();
  }
  if (is_read) news.push_back(Record{.at = now, .what = boot});
  for (auto it = sessions_.begin(); it != sessions_.end();) {
    const Past& past = (it++)->second;
    SessionId id = past.record.session;
    const auto started = starts(static_cast<pid_t>(past.record.pid));
    if (started.value_or(past.record.started) == past.record.started) {
      if (past.attached()) ++recovered.expected_sessions;
    } else {
      news.push_back(Record{.at = now, .what = GoneRecord{.session = id}});
      sessions_.erase(id);
    }
  }
  keep_placements(starts);
  for (const auto& [id, tenant] : tenants.all()) {
    const auto touched = touched_.find(id);
    tenants.find(id)->touched = touched == touched_.end() ? now : touched->second;
  }
  recovered.last_record = reader_.last_record();
  recovered.last_epoch = reader_.last_epoch();
  for (const TenantId id : ended_tenants()) {
    news.push_back(Record{.at = now, .what = EndRecord{.tenant = id}});
    add(news.back());
  }
  return news;
}

// Returns the tenants that are not jobs and have no living process.
std::vector<TenantId> History::ended_tenants() const {
  std::set<TenantId> living;
  for (const auto& [id, past] : sessions_) living.insert(past.record.tenant);
  for (const auto& [id, processes] : keepers) living.insert(id);
  std::vector<TenantId> over;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job() && living.count(id) == 0) over.push_back(id);
  return over;
}

// Removes from `keepers` the processes that have ended, and from `recovered` the placements without keepers.
// A process keeps the placement of its tenant if it was informed of the placement, or has a session.
void History::keep_placements(StartTimeOf starts) {
  for (const auto& [id, past] : sessions_)
    if (recovered.placements.count(past.record.tenant) > 0)
      keepers[past.record.tenant].insert({.pid = past.record.pid, .started = past.record.started});
  for (auto& [tenant, processes] : keepers)
    std::erase_if(processes, [&](const ProcessName& each) {
      return starts(static_cast<pid_t>(each.pid)).value_or(each.started) != each.started;
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

bool History::expects(const ProcessName& process) const {
  return std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    const SessionRecord& its = entry.second.record;
    return its.pid == process.pid && its.started == process.started;
  });
}

}  // namespace sharedgpu
