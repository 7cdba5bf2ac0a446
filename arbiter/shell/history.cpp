// SPDX-License-Identifier: Apache-2.0
#include "arbiter/shell/history.h"

#include <algorithm>

namespace sharedgpu {

void History::add(const Record& record) {
  if (const auto* boot = std::get_if<BootRecord>(&record.what)) {
    if (boot->boot_id != boot_id_) end_boot();
    boot_id_ = boot->boot_id;
  } else if (const auto* tenant = std::get_if<TenantRecord>(&record.what)) {
    tenants.restore(tenant->tenant, tenant->name, tenant->uid).anchored = tenant->name.is_run();
  } else if (const auto* options = std::get_if<OptionsRecord>(&record.what)) {
    if (TenantInfo* info = tenants.find(options->tenant)) info->options = options->options;
  } else if (const auto* end = std::get_if<EndRecord>(&record.what)) {
    tenants.forget(end->tenant);
    recovered.leases.forget(end->tenant);
    recovered.placements.erase(end->tenant);
    keepers.erase(end->tenant);
  } else if (const auto* place = std::get_if<PlaceRecord>(&record.what)) {
    const GpuList& gpus = place->gpus;
    recovered.placements[place->tenant] = {.units = place->units, .gpus = {gpus.gpu, gpus.gpu + gpus.count}};
    keepers[place->tenant].insert({.pid = place->pid, .started = place->started});
  } else if (const auto* session = std::get_if<SessionRecord>(&record.what)) {
    sessions_[session->session] = Past{.record = *session, .gpu = {}};
    last_session = std::max(last_session, session->session);
  } else if (const auto* attach = std::get_if<AttachRecord>(&record.what)) {
    auto past = sessions_.find(attach->session);
    if (past != sessions_.end()) past->second.gpu = attach->gpu;
  } else if (const auto* gone = std::get_if<GoneRecord>(&record.what)) {
    sessions_.erase(gone->session);
  } else if (const auto* lease = std::get_if<LeaseRecord>(&record.what)) {
    recovered.last_epoch = std::max(recovered.last_epoch, lease->epoch);
    if (lease->grant)
      recovered.leases.grant(lease->key, lease->epoch, record.at);
    else
      recovered.leases.release(lease->key, record.at);
  }
  last_ = record.at;
}

// The host went down: whatever was held then ended, as far as is known, with the last record of that boot.
void History::end_boot() {
  while (!recovered.leases.open().empty()) {
    LeaseKey key = recovered.leases.open().begin()->first;
    recovered.leases.release(key, last_);
  }
  sessions_.clear();
  recovered.placements.clear();
  keepers.clear();
  std::vector<TenantId> ended;
  for (const auto& [id, tenant] : tenants.all())
    if (!tenant.name.is_job()) ended.push_back(id);
  for (TenantId id : ended) {
    tenants.forget(id);
    recovered.leases.forget(id);
  }
}

std::vector<Record> History::finish(const BootRecord& boot, std::uint64_t (*starts)(pid_t), Nanoseconds now) {
  std::vector<Record> news;
  if (boot.boot_id != boot_id_) end_boot();
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
  return news;
}

// A placement lasts as long as a process that was told of it, or one that had a session.
void History::keep_placements(std::uint64_t (*starts)(pid_t)) {
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
