// SPDX-License-Identifier: Apache-2.0
#include "arbiter/core/snapshot.h"

#include "arbiter/core/actions.h"

namespace sharedgpu {

Snapshot::Session Core::view_of(const Session& session) const {
  Snapshot::Session view;
  view.id = session.id;
  view.tenant = session.tenant->id;
  view.step = session.step;
  if (session.gpu != nullptr) view.gpu = session.gpu->uuid;
  view.use = session.use;
  view.resident_limit = session.allowed;
  view.gate_open = session.gate_open;
  view.wants = session.wants;
  view.stopped = session.stopped;
  view.stuck = session.stuck(now_);
  view.restoring = session.asked;
  view.ready = session.ready;
  view.drained = session.released;
  view.returning = session.unknown_since != Nanoseconds{};
  view.host_short = session.host_short != Nanoseconds{};
  view.defers_growth = !session.held_back.empty();
  view.requests = session.requests.size();
  view.order = session.order;
  view.prepared_host = session.told_host;
  view.sharers = session.told_sharers;
  view.contended = session.contended;
  view.oversubscribed = session.oversubscribed;
  view.queue = session.queue;
  view.turn_ends = session.turn_ends;
  return view;
}

Snapshot::Tenant Core::view_of(const Tenant& tenant) const {
  Snapshot::Tenant view;
  view.id = tenant.id;
  view.phase = tenant.phase;
  view.epoch = tenant.epoch;
  for (const Session* session : tenant.sessions) view.sessions.push_back(session->id);
  view.policy = tenant.rules.policy;
  view.stated = tenant.stated;
  view.claims = tenant.claims;
  view.timed = tenant.timed;
  view.share = tenant.share;
  view.due = tenant.due;
  view.due_now = tenant.standing.due;
  view.credit = credit(tenant);
  view.wants = tenant.wants();
  view.stopped = tenant.stopped();
  view.absent = absent(tenant);
  view.taken = tenant.taken;
  view.comes_home = tenant.comes_home;
  view.waiting_since = tenant.waiting_since;
  view.turn_began = tenant.turn_began;
  view.left = tenant.left;
  view.given_back = tenant.given_back;
  view.handoff = tenant.handoff;
  view.drain = tenant.drain;
  view.used = tenant.used;
  view.burst = tenant.burst;
  view.long_pauses = tenant.long_pauses;
  view.deadlines = {.met = tenant.deadlines.met, .missed = tenant.deadlines.missed};
  view.host_budget = host_budget(tenant);
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
  view.usable = usable(gpu);
  view.promised = promised(gpu);
  view.policy = (gpu.sessions.empty() ? gpu.rules : gpu.sessions.front()->tenant->rules).policy;
  view.turn = gpu.turn;
  view.handoff = gpu.handoff;
  view.threads_left = gpu.threads.part;
  view.threads_left_below = gpu.threads.below;
  for (const Session* session : gpu.sessions) view.sessions.push_back(session->id);
  return view;
}

Snapshot Core::snapshot() const {
  Snapshot all;
  all.recovering = in_grace_;
  all.gpus.reserve(state_.gpus.size());
  all.tenants.reserve(state_.tenants.size());
  all.sessions.reserve(state_.sessions.size());
  for (const auto& [uuid, gpu] : state_.gpus) all.gpus.push_back(view_of(gpu));
  for (const auto& [id, tenant] : state_.tenants) all.tenants.push_back(view_of(tenant));
  for (const auto& [id, session] : state_.sessions) all.sessions.push_back(view_of(session));
  all.placements = state_.placements;
  return all;
}

std::optional<Snapshot::Session> Core::session(SessionId id) const {
  const auto found = state_.sessions.find(id);
  return found == state_.sessions.end() ? std::nullopt : std::optional(view_of(found->second));
}

}  // namespace sharedgpu
