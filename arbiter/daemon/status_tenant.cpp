// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>

#include "arbiter/daemon/processes.h"
#include "arbiter/daemon/status_parts.h"
#include "protocol/backend_names.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

namespace sharedgpu::status {
namespace {

const char* name_of(Phase phase) {
  switch (phase) {
    case Phase::out:
      return "out";
    case Phase::entering:
      return "entering";
    case Phase::running:
      return "running";
    case Phase::leaving:
      return "leaving";
  }
  return "";
}

const char* name_of(GangMembers::Contact contact) {
  switch (contact) {
    case GangMembers::Contact::sought:
      return "sought";
    case GangMembers::Contact::held:
      return "held";
    case GangMembers::Contact::lost:
      return "lost";
    case GangMembers::Contact::given_up:
      return "given-up";
  }
  return "";
}

const char* name_of(GangCommand command) {
  switch (command) {
    case GangCommand::wait:
      return "wait";
    case GangCommand::enter:
      return "enter";
    case GangCommand::run:
      return "run";
    case GangCommand::leave:
      return "leave";
  }
  return "";
}

void write_terms(JsonText& json, const TenantInfo& info, const Snapshot::Tenant* tenant) {
  json.field("id", info.id.value);
  json.field("name", info.label());
  json.field("job", value_if(info.name.is_job(), info.name.job));
  json.field("array_job", value_if(info.element.array != 0, info.element.array));
  json.field("array_index", value_if(info.element.array != 0, info.element.index));
  json.field("uid", info.uid);
  json.field("partition", text_or_null(info.job_class.partition));
  json.field("qos", text_or_null(info.job_class.qos));
  json.field("units", std::max(info.options.units, 1u));
  const Claims stated = tenant == nullptr ? Claims{} : tenant->stated;
  json.field("priority", stated.priority);
  json.field("share_request", stated.request);
  json.field("share_limit", stated.limit);
  json.field("share_allowed", tenant == nullptr ? stated.limit : tenant->claims.limit);
  json.field("share_due", tenant == nullptr ? 0 : tenant->due_now);
  json.field("deadline_seconds", seconds(info.options.deadline));
  json.field("deadlines_met", tenant == nullptr ? 0 : tenant->deadlines.met);
  json.field("deadlines_missed", tenant == nullptr ? 0 : tenant->deadlines.missed);
  json.field("memory_limit_bytes", info.options.memory.count);
}

// Returns the reason why a tenant whose turn is over has not left the GPU, although other tenants wait.
const char* awaited(const StatusView& view, const Snapshot::Tenant& tenant) {
  if (tenant.overdue->stopped) return "stopped";
  if (tenant.overdue->evicts) return "eviction";
  const bool answers = std::none_of(tenant.sessions.begin(), tenant.sessions.end(), [&](SessionId id) {
    const Snapshot::Session& session = *view.state.find(id);
    return session.gpu == tenant.overdue->gpu && !session.drained && view.deaf.count(id) > 0;
  });
  return answers ? "work" : "answer";
}

// The host memory that a process of the tenant can allocate, if the process falsely claims that it cannot
// evict for lack of host memory. Null if no process of the tenant makes this claim, or if the claim may be
// true.
std::optional<std::uint64_t> free_host(const StatusView& view, const Snapshot::Tenant& tenant) {
  std::optional<std::uint64_t> least;
  for (const SessionId id : tenant.sessions)
    if (const auto found = view.refuted.find(id); found != view.refuted.end())
      least = std::min(least.value_or(found->second.count), found->second.count);
  return least;
}

void write_overdue(JsonText& json, const StatusView& view, const Snapshot::Tenant* tenant) {
  if (tenant == nullptr || !tenant->overdue) return json.field("overdue", nullptr);
  json.object("overdue", [&] {
    json.field("seconds", seconds(view.now - tenant->overdue->since));
    json.field("gpu", format_gpu(tenant->overdue->gpu));
    json.field("waits_for", awaited(view, *tenant));
    json.field("free_host_bytes", free_host(view, *tenant));
  });
}

// The exchanges of the tenant's programs; null if there was neither an exchange nor a slowed kernel.
void write_exchanges(JsonText& json, const Exchanges& exchanges) {
  if (exchanges == Exchanges{}) return json.field("exchanges", nullptr);
  json.object("exchanges", [&] {
    json.field("evicted_bytes", exchanges.moved.evicted.count);
    json.field("restored_bytes", exchanges.moved.restored.count);
    json.field("moving_seconds", seconds(exchanges.moving));
    json.field("best_seconds", seconds(exchanges.moving_at_best()));
    json.field("waited_seconds", seconds(exchanges.waited));
    json.field("slowed_seconds", seconds(exchanges.slowed));
  });
}

void write_time(JsonText& json, const StatusView& view, TenantId id, const Snapshot::Tenant* tenant) {
  const LeaseBook& leases = view.core.leases();
  json.field("state", name_of(tenant == nullptr ? Phase::out : tenant->phase));
  json.field("lease", leases.holds(id));
  json.field("lease_seconds", seconds(leases.of_tenant(id, view.now)));
  const Figures figures = view.figures.of(id, {}, view.now);
  json.field("waited_seconds", seconds(figures.waited));
  json.field("overuse_seconds", seconds(figures.overuse));
  json.field("entering_seconds", seconds(figures.entering));
  json.field("evicting_seconds", seconds(figures.evicting));
  json.field("handoffs", figures.handoffs);
  json.field("evicted_bytes", figures.moved.evicted.count);
  json.field("restored_bytes", figures.moved.restored.count);
  write_exchanges(json, figures.exchanges);
  json.field("highest_footprint_bytes", figures.footprint.count);
  json.field("highest_resident_bytes", figures.resident.count);
  json.field("to_evict_bytes", view.core.to_evict(id).count);
  json.field("wants", tenant != nullptr && tenant->wants);
  json.field("credit_seconds", tenant == nullptr ? 0 : seconds(tenant->lag));
  json.field("epoch", tenant == nullptr ? 0 : tenant->epoch.value);
  const bool leaving = tenant != nullptr && tenant->phase == Phase::leaving;
  json.field("leaving_seconds", leaving ? seconds(view.now - tenant->gates_closed) : 0.0);
  write_overdue(json, view, tenant);
}

// The totals of a tenant's sessions.
struct SessionsOf {
  Sum sum;
  std::set<std::string> gpus;
  std::set<pid_t> pids;  // a process has a session for each of its GPUs
  std::set<pid_t> stopped;
  bool stuck = false;

  SessionsOf(const StatusView& view, const Snapshot::Tenant* tenant) {
    if (tenant == nullptr) return;
    for (const SessionId id : tenant->sessions) {
      const Snapshot::Session& session = *view.state.find(id);
      sum.add(session);
      if (session.gpu) gpus.insert(format_gpu(*session.gpu));
      stuck = stuck || session.stuck;
      const pid_t pid = pid_of(view, id);
      if (pids.insert(pid).second && pid != 0 && is_stopped(view.system, pid)) stopped.insert(pid);
    }
  }
};

void write_session(JsonText& json, const StatusView& view, const TenantInfo& info,
                   const Snapshot::Session& session, bool stopped) {
  const std::optional<Bytes> shown = session.evidence.shown();
  json.field("pid", pid_of(view, session.id));
  json.field("step", value_if(info.name.is_job(), format_step(session.step.step)));
  json.field("gpu", value_if(session.gpu.has_value(), format_gpu(session.gpu.value_or(GpuUuid{}))));
  json.field("footprint_bytes", session.use.footprint().count);
  json.field("resident_bytes", (session.use.resident + session.use.pinned).count);
  json.field("allowed_bytes", session.resident_limit.count);
  json.field("host_bytes", session.use.host.count);
  json.field("away_bytes", session.away.count);
  json.field("device_bytes", size_or_null(shown));
  json.field("unseen_bytes", value_if(shown.has_value(), session.evidence.absent().count));
  json.field("gate_open", session.gate_open);
  json.field("stuck", session.stuck);
  json.field("stopped", stopped);
}

// Writes the differences between the memory that the tenant reports and the memory that its processes have.
void write_differences(JsonText& json, const StatusView& view, TenantId id) {
  Bytes unreported;
  for (const UnmanagedProcess& process : view.unmanaged)
    if (process.tenant == id) unreported += process.memory;
  const auto found = view.overreported.find(id);
  const Overreported over = found == view.overreported.end() ? Overreported{} : found->second;
  json.field("unreported_bytes", unreported.count);
  json.field("unseen_bytes", over.device.unseen.count);
  json.field("overreported_bytes", over.device.disproved.count);
  json.field("overreported_host_bytes", over.host.count);
}

void write_sessions(JsonText& json, const StatusView& view, const TenantInfo& info,
                    const Snapshot::Tenant* tenant) {
  const SessionsOf sessions(view, tenant);
  sessions.sum.write(json);
  const HostLimits limits = tenant == nullptr ? HostLimits{} : tenant->host;
  json.field("host_budget_bytes", size_or_null(limits.budget));
  json.field("units_memory_bytes", size_or_null(limits.units));
  json.field("job_memory_bytes", size_or_null(limits.job));
  json.field("stuck", sessions.stuck);
  json.field("stopped", !sessions.stopped.empty());
  json.values("gpus", sessions.gpus);
  json.list("placed", [&] {
    if (auto found = view.state.placements.find(info.id); found != view.state.placements.end())
      for (const GpuUuid& gpu : found->second.gpus) json.value(format_gpu(gpu));
  });
  json.values("pids", sessions.pids);
  json.list("sessions", [&] {
    if (tenant == nullptr) return;
    for (const SessionId id : tenant->sessions)
      json.object([&] {
        write_session(json, view, info, *view.state.find(id), sessions.stopped.count(pid_of(view, id)) > 0);
      });
  });
}

void write_energy(JsonText& json, const StatusView& view, const TenantInfo& info) {
  json.list("energy", [&] {
    for (const auto& [gpu, energy] : view.figures.energy().of(info.id))
      json.object([&, &gpu = gpu, &energy = energy] {
        json.field("gpu", format_gpu(gpu));
        json.field("joules", joules(energy));
      });
  });
}

void write_steps(JsonText& json, const StatusView& view, const TenantInfo& info) {
  json.list("steps", [&] {
    if (!info.name.is_job()) return;
    for (const auto& [step, lease] : view.core.leases().steps_of(info.id, view.now))
      json.object([&, &step = step, &lease = lease] {
        const Traffic moved = view.figures.of(info.id, step).moved;
        json.field("step", format_step(step.step));
        json.field("lease_seconds", seconds(lease));
        json.field("evicted_bytes", moved.evicted.count);
        json.field("restored_bytes", moved.restored.count);
      });
  });
}

// The control group of a run; null if the run has no control group.
void write_group(JsonText& json, const StatusView& view, const TenantInfo& tenant) {
  if (tenant.group_limit == Bytes{}) return json.field("host_group", nullptr);
  json.object("host_group", [&] {
    json.field("limit_bytes", tenant.group_limit.count);
    json.field("highest_bytes", view.figures.of(tenant.id).host.count);
  });
}

// The tenant's lost GPU whose first loss came last; null if none of its GPUs was lost.
void write_loss(JsonText& json, const TenantInfo& tenant) {
  if (tenant.losses.empty()) return json.field("lost_gpu", nullptr);
  json.object("lost_gpu", [&] {
    json.field("gpu", format_gpu(tenant.losses.back().gpu));
    json.field("fault", tenant.losses.back().fault);
  });
}

// Writes null if the job has only one node, or if its turns are not coordinated with other nodes.
void write_gang(JsonText& json, const StatusView& view, TenantId id) {
  const GangMembers::Gang* gang = view.gangs.find(id);
  if (gang == nullptr) return json.field("gang", nullptr);
  json.object("gang", [&] {
    json.field("coordinator", gang->job.coordinator);
    json.field("nodes", gang->job.nodes);
    json.field("contact", name_of(gang->contact));
    json.field("command", gang->order ? std::optional(name_of(gang->order->command)) : std::nullopt);
  });
}

}  // namespace

void write_tenant(JsonText& json, const StatusView& view, const TenantInfo& info) {
  const Snapshot::Tenant* tenant = view.state.find(info.id);
  write_terms(json, info, tenant);
  write_time(json, view, info.id, tenant);
  write_sessions(json, view, info, tenant);
  write_differences(json, view, info.id);
  write_group(json, view, info);
  write_loss(json, info);
  write_gang(json, view, info.id);
  write_steps(json, view, info);
  write_energy(json, view, info);
  json.field("backend", value_if(info.options.backend_given != 0, name_of(info.options.backend)));
}

}  // namespace sharedgpu::status
