// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/queries.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>

#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/status_text.h"

namespace sharedgpu {

// The job, if the asker owns it or is an administrator; otherwise null.
const TenantInfo* Queries::job_for(const Client& client, std::uint32_t number) const {
  const Peer& peer = client.peer();
  const TenantInfo* job = number == 0 ? nullptr : its_.tenants.find(job_name(number));
  const bool may_know =
      job != nullptr && (acts_for(peer, job->uid) || its_.administration.is_administrator(peer.uid));
  return may_know ? job : nullptr;
}

void Queries::lease(Client& client, const LeaseQuery& query) {
  LeaseReply reply;
  reply.step = query.step;
  if (const TenantInfo* job = job_for(client, query.step.job)) {
    const Nanoseconds now = its_.system.now();
    const LeaseBook& leases = its_.core.core().leases();
    const auto& sessions = its_.sessions.all();
    const bool attached_now = std::any_of(sessions.begin(), sessions.end(), [&](const auto& session) {
      return session.second.client->peer().step == query.step;
    });
    const Figures figures = its_.figures.of(job->id, query.step, now);
    reply.lease = leases.of_step(query.step, now);
    reply.moved = figures.moved;
    reply.waited = figures.waited;
    reply.known = attached_now || leases.knows(query.step);
  }
  client.send(reply);
}

void Queries::job(Client& client, const JobQuery& query) {
  JobReply reply;
  reply.job = query.job;
  if (const TenantInfo* job = job_for(client, query.job)) {
    const Nanoseconds now = its_.system.now();
    const Figures figures = its_.figures.of(job->id, {}, now);
    reply.known = 1;
    reply.lives = its_.jobs.lives(*job) || its_.health.may_miss_a_loss(*job);
    reply.backends = static_cast<std::uint8_t>(figures.backends);
    reply.lease = its_.core.core().leases().of_tenant(job->id, now);
    reply.waited = figures.waited;
    reply.overuse = figures.overuse;
    reply.handoffs = figures.handoffs;
    reply.moved = figures.moved;
    reply.footprint = figures.footprint;
    reply.resident = figures.resident;
    models_of(*job).copy(reply.models, sizeof reply.models - 1);
    reply.losses = static_cast<std::uint32_t>(job->losses.size());
  }
  client.send(reply);
}

void Queries::exchanges(Client& client, const ExchangeQuery& query) {
  ExchangeReply reply{.job = query.job};
  if (const TenantInfo* job = job_for(client, query.job)) {
    reply.known = 1;
    reply.exchanges = its_.figures.of(job->id).exchanges;
  }
  client.send(reply);
}

void Queries::gpu_loss(Client& client, const GpuLossQuery& query) {
  GpuLossReply reply;
  reply.job = query.job;
  const TenantInfo* job = job_for(client, query.job);
  if (job != nullptr && query.place < job->losses.size()) {
    const GpuLoss& loss = job->losses[query.place];
    reply.known = 1;
    reply.gpu = loss.gpu;
    loss.fault.copy(reply.fault, sizeof reply.fault - 1);
  }
  client.send(reply);
}

std::string Queries::models_of(const TenantInfo& tenant) const {
  const auto& names = its_.gpus.names();
  std::set<std::string> models;
  for (const auto& [uuid, time] : its_.core.core().leases().closed_of(tenant.id).gpus)
    if (const auto name = names.find(uuid); name != names.end()) models.insert(name->second);
  std::string text;
  for (const std::string& model : models) text += (text.empty() ? "" : ";") + model;
  return text;
}

void Queries::gpu(Client& client, const GpuQuery& query) {
  GpuReply reply;
  const Peer& peer = client.peer();
  const TenantInfo* tenant = its_.tenants.find(its_.jobs.name_of(peer, query.token));
  const bool native =
      tenant != nullptr && tenant->options.backend_given != 0 && tenant->options.backend == Backend::native;
  if (its_.core.core().knows(query.gpu) && !native) {
    const TenantId id = tenant != nullptr ? tenant->id : TenantId{};
    const Bytes cap = tenant != nullptr ? tenant->options.memory : Bytes{};
    const bool can_be_away = client.connection().version() >= Usage::kAway;
    const Core::Room room =
        its_.core.core().room(query.gpu, id, cap, peer.step.value_or(StepName{}), can_be_away);
    reply.known = 1;
    reply.total = room.total;
    reply.free = room.free;
    list_processes(client, query, id, reply);
  }
  client.send(reply);
}

// Lists the tenant's processes on the GPU, without those in PID namespaces that the asker does not see.
void Queries::list_processes(const Client& client, const GpuQuery& query, TenantId tenant,
                             GpuReply& reply) const {
  for (const auto& [id, footprint] : its_.core.core().footprints(tenant, query.gpu)) {
    const auto* entry = its_.sessions.find(id);
    const pid_t pid = entry == nullptr ? 0 : pid_seen_by(client.peer().names, entry->client->peer().names);
    if (pid == 0) continue;
    // for a process whose index is below query.first, `place` wraps around to a value above kProcesses
    const std::uint32_t place = reply.processes++ - query.first;
    if (place >= GpuReply::kProcesses) continue;
    reply.process[place] = {.pid = static_cast<std::uint32_t>(pid), .used = footprint};
  }
}

// A peer must read the last answer before it gets another answer.
void Queries::status(Client& client, const StatusQuery& /*query*/) {
  if (client.connection().has_unread()) return client.connection().close(kDoesNotRead);
  const std::optional<uid_t> viewer = its_.viewers.limit_for(viewer_of(client.peer()));
  if (may_have_fresh_status(client.peer()) || status_files_.newest(viewer) == nullptr)
    if (Status made = status_files_.add(status_text(viewer), viewer); !made.ok())
      return client.connection().refuse(made.message());
  const StatusFiles::File& newest = *status_files_.newest(viewer);
  client.send(StatusReply{.size = newest.size}, newest.to_read.get());
}

// Returns false if the user asks too often, and so gets the last answer again. Administrators and the
// arbiter's own user always get a fresh answer.
bool Queries::may_have_fresh_status(const Peer& peer) {
  return peer.account == 0 || peer.account == geteuid() || its_.administration.is_administrator(peer.uid) ||
         fresh_statuses_.take(peer.account, its_.system.now());
}

std::string Queries::status_text(std::optional<uid_t> viewer) const {
  std::map<SessionId, pid_t> pids;
  std::set<SessionId> deaf;
  std::map<SessionId, Bytes> refuted;
  std::map<TenantId, Overreported> overreported;
  for (const auto& [id, entry] : its_.sessions.all()) {
    pids[id] = entry.client->peer().pid;
    if (!entry.reads()) deaf.insert(id);
    const ProcessName process = entry.client->peer().process();
    if (entry.client->session() == *its_.sessions.of(process).begin())  // once per process
      overreported[entry.client->tenant()].host += its_.host_claims.excess(process);
    if (const auto room = its_.host_claims.refuted(process)) refuted[id] = *room;
  }
  for (auto& [tenant, excess] : overreported) excess.device = its_.device_claims.of(tenant);
  const Snapshot state = its_.core.core().snapshot();
  return format_status(StatusView{.system = its_.system,
                                  .core = its_.core.core(),
                                  .state = state,
                                  .tenants = its_.tenants,
                                  .figures = its_.figures,
                                  .gpu_names = its_.gpus.names(),
                                  .pids = pids,
                                  .deaf = deaf,
                                  .refuted = refuted,
                                  .overreported = overreported,
                                  .settings = its_.administration.settings(),
                                  .overrides = its_.administration.overrides(),
                                  .now = its_.system.now(),
                                  .unmanaged = its_.unmanaged.processes(),
                                  .health = its_.health.states(),
                                  .meters = its_.meters.all(),
                                  .gangs = its_.coordination.gangs(),
                                  .viewer = viewer});
}

}  // namespace sharedgpu
