// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/snapshot.h"

#include <algorithm>

#include "arbiter/core/core.h"

namespace sharedgpu {

Snapshot::Session Core::view_of(const Session& session) const {
  const SessionBook& book = memory_.of(session);
  const PageState& page = turns_.page(session);
  Snapshot::Session view;
  view.id = session.id;
  view.tenant = session.tenant->id;
  view.step = session.step;
  if (attached(&session)) view.gpu = session.gpu->uuid;
  view.use = book.use;
  view.away = book.away;
  view.resident_limit = book.resident_limit;
  view.backend = session.backend;
  view.evidence = book.evidence;
  view.disproved = book.disproved();
  view.unreported = memory_.unreported(session);
  view.allowed = book.allowed;
  view.allowed.raise(book.allowed_now());
  view.claims_nothing = memory_.has_nothing(session);
  view.gate_open = turns_.gate_open(session);
  view.wants = turns_.wants(session);
  view.frozen = presence_.frozen(session);
  view.suspended = presence_.found_suspended(session);
  view.stuck = view.frozen || book.stuck_until > effects_.now();
  view.restoring = book.restoring;
  view.ready = book.ready;
  view.drained = turns_.drain_confirmed(session);
  view.returned = turns_.returned(session);
  view.host_short = scheduler_.host_short(session);
  view.defers_growth = !book.deferred.empty();
  view.requests = book.requests.size() + book.away_requests.size();
  view.order = turns_.order(session);
  view.prepared_host = book.prepared_host;
  view.sharers = book.sharers;
  view.contended = page.contended;
  view.oversubscribed = page.oversubscribed;
  view.queue = page.queue;
  view.turn_ends = page.turn_ends;
  return view;
}

Snapshot::Tenant Core::view_of(const Tenant& tenant) const {
  const Accounts& accounts = scheduler_.accounts();
  const Estimates& estimates = scheduler_.estimates();
  const DeadlineLimits& limits = scheduler_.limits();
  Snapshot::Tenant view;
  view.id = tenant.id;
  view.phase = turns_.phase_of(tenant);
  view.epoch = turns_.epoch(tenant);
  for (const Session* session : tenant.sessions) view.sessions.push_back(session->id);
  view.policy = model_.rules_of(tenant).policy;
  view.stated = tenant.stated;
  view.claims = limits.claims(tenant);
  view.exclusive = tenant.exclusive;
  view.share = accounts.share(tenant);
  view.due = accounts.due(tenant);
  view.due_now = accounts.activity(tenant).due;
  view.lag = accounts.lag(tenant);
  view.wants = turns_.wants(tenant);
  view.frozen = presence_.frozen(tenant);
  view.absent = presence_.absent(tenant);
  view.suspended = presence_.suspended(tenant);
  view.revoked = turns_.revoked(tenant);
  view.recalled = scheduler_.recalled(tenant);
  view.overdue = overuse_.of(tenant);
  view.waiting_since = scheduler_.waiting_since(tenant);
  view.turn_began = turns_.turn_began(tenant);
  view.gates_closed = turns_.gates_closed(tenant);
  view.yielded_until = scheduler_.yielded_until(tenant);
  view.handoff = estimates.handoff(tenant);
  view.last_drain = turns_.last_drain(tenant);
  view.used = estimates.used(tenant);
  view.mean_burst = estimates.mean_burst(tenant);
  view.long_pauses = estimates.long_pauses(tenant);
  view.deadlines = {.met = limits.met(tenant), .missed = limits.missed(tenant)};
  view.host = memory_.host_limits(tenant);
  return view;
}

Snapshot::Gpu Core::view_of(const Gpu& gpu) const {
  Snapshot::Gpu view;
  view.uuid = gpu.uuid;
  view.number = gpu.number;
  view.minor = gpu.minor;
  view.total = gpu.total;
  view.capacity = gpu.capacity;
  view.learned = gpu.learned;
  view.condition = gpu.condition;
  view.drained = gpu.drained;
  view.usable = memory_.usable(gpu);
  view.surveyed = memory_.surveyed(gpu);
  view.unmanaged = memory_.unmanaged(gpu);
  for (const Session* session : gpu.sessions)
    view.promised += memory_.promised(*session, turns_.residency(*session));
  view.policy =
      (gpu.sessions.empty() ? model_.rules_of(gpu.uuid) : model_.rules_of(*gpu.sessions.front()->tenant))
          .policy;
  view.turn = scheduler_.lengths().of(gpu);
  view.handoff = scheduler_.lengths().handoff(gpu);
  view.threads_left = scheduler_.limits().threads(gpu).part;
  view.threads_left_below = scheduler_.limits().threads(gpu).below;
  for (const Session* session : gpu.sessions) view.sessions.push_back(session->id);
  return view;
}

Snapshot Core::snapshot() const {
  Snapshot all;
  all.recovering = recovery_.active();
  all.gpus.reserve(model_.gpus().size());
  all.tenants.reserve(model_.tenants().size());
  all.sessions.reserve(model_.sessions().size());
  for (const auto& [uuid, gpu] : model_.gpus()) all.gpus.push_back(view_of(gpu));
  for (const auto& [id, tenant] : model_.tenants()) all.tenants.push_back(view_of(tenant));
  for (const auto& [id, session] : model_.sessions()) all.sessions.push_back(view_of(session));
  all.placements = placements_;
  return all;
}

Core::Queue Core::queue(const GpuUuid& uuid, Nanoseconds now) const {
  Queue queue;
  const Gpu* gpu = model_.find(uuid);
  if (gpu == nullptr || gpu->sessions.empty() || model_.stale()) return queue;
  const std::optional<std::size_t> index = gpu->sessions.front()->tenant->domain;
  if (!index) return queue;
  const Domain& domain = model_.domains()[*index];
  for (const Tenant* tenant : scheduler_.waiting(domain))
    if (uses(*tenant, *gpu)) queue.waiting.push_back(tenant->id);
  const Scheduler::Turn turn = scheduler_.turn_of(domain);
  if (turn.state.begun && scheduler_.others_wait(domain)) {
    const Nanoseconds since = std::max(now - effects_.now(), Nanoseconds{});
    queue.turn_left = std::max(turn.left - since, Nanoseconds{});
  }
  return queue;
}

std::vector<std::pair<SessionId, Bytes>> Core::footprints(TenantId tenant, const GpuUuid& gpu) const {
  std::vector<std::pair<SessionId, Bytes>> all;
  if (const Tenant* found = model_.find(tenant))
    for (const Session* session : found->sessions)
      if (attached(session) && session->gpu->uuid == gpu)
        all.emplace_back(session->id, memory_.of(*session).size());
  return all;
}

Bytes Core::to_evict(TenantId tenant) const {
  Bytes sum;
  if (const Tenant* found = model_.find(tenant))
    for (const Session* session : found->sessions) {
      const SessionBook& book = memory_.of(*session);
      sum += minus(book.use.resident, book.resident_limit);
    }
  return sum;
}

Bytes Core::uncharged(TenantId tenant) const {
  Bytes sum;
  if (const Tenant* found = model_.find(tenant))
    for (const Session* session : found->sessions) {
      const SessionBook& book = memory_.of(*session);
      sum += session->backend == Backend::managed ? book.uncharged : book.away;
    }
  return sum;
}

RefusalReply Core::explain(SessionId id, Bytes size, bool pinned) const {
  RefusalReply reply;
  const Session* session = model_.find(id);
  if (session == nullptr || !attached(session)) return reply;
  const Tenant& tenant = *session->tenant;
  const MemoryBooks::Passed passed = memory_.passed_limit(*session, size, pinned);
  reply.bound = passed.bound;
  reply.most = passed.most;
  reply.needed = passed.needed;
  reply.brought = tenant.limits.host;
  reply.host = memory_.host_held(tenant);
  if (passed.bound != Bound::units) return reply;
  const std::uint64_t each =
      std::max<std::uint64_t>(passed.most.count / std::max(tenant.stated.units, 1u), 1);
  const std::uint64_t units = passed.needed.count / each + (passed.needed.count % each == 0 ? 0 : 1);
  reply.units = units > JobOptions::kMostUnits ? 0 : static_cast<std::uint32_t>(units);
  return reply;
}

std::optional<Snapshot::Session> Core::session(SessionId id) const {
  const Session* found = model_.find(id);
  return found == nullptr ? std::nullopt : std::optional(view_of(*found));
}

}  // namespace sharedgpu
