// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/status_text.h"

#include <algorithm>
#include <optional>
#include <set>

#include "arbiter/daemon/json_text.h"
#include "arbiter/daemon/processes.h"
#include "protocol/backend_names.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

// A job without sessions is shown for this time after its last step, unless Slurm has reported the end of the
// job.
constexpr std::chrono::minutes kShowEnded{10};

double seconds(Nanoseconds time) { return std::chrono::duration<double>(time).count(); }

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

const char* name_of(TurnRule rule) {
  switch (rule) {
    case TurnRule::fixed:
      return "fixed";
    case TurnRule::swap_overhead:
      return "swap-overhead";
    case TurnRule::max_wait:
      return "max-wait";
    case TurnRule::work:
      return "work";
  }
  return "";
}

const char* name_of(GpuCondition condition) {
  switch (condition) {
    case GpuCondition::healthy:
      return "healthy";
    case GpuCondition::failing:
      return "failing";
    case GpuCondition::lost:
      return "lost";
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

// The value, or null if the condition does not hold.
template <class Value>
std::optional<Value> value_if(bool condition, Value value) {
  return condition ? std::optional(std::move(value)) : std::nullopt;
}

std::optional<std::string_view> text_or_null(std::string_view text) { return value_if(!text.empty(), text); }

std::optional<std::uint64_t> size_or_null(std::optional<Bytes> size) {
  return size ? std::optional(size->count) : std::nullopt;
}

void write_health(JsonText& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  const auto known = view.health.find(gpu.uuid);
  const GpuState state = known == view.health.end() ? GpuState() : known->second;
  json.field("condition", name_of(gpu.condition));
  json.field("fault", text_or_null(state.fault));
  json.field("drained", gpu.drained);
  json.field("drain_reason", text_or_null(state.drain.value_or("")));
}

struct Sum {
  MemoryUse use;
  Bytes away;
  void add(const Snapshot::Session& session) {
    const MemoryUse& more = session.use;
    away += session.away;
    use.swappable += more.swappable;
    use.resident += more.resident;
    use.pinned += more.pinned;
    use.context += more.context;
    use.host += more.host;
  }
  void write(JsonText& json) const {
    json.field("footprint_bytes", use.footprint().count);
    json.field("resident_bytes", (use.resident + use.pinned).count);
    json.field("pinned_bytes", use.pinned.count);
    json.field("context_bytes", use.context.count);
    json.field("host_bytes", use.host.count);
    json.field("away_bytes", away.count);
  }
};

// The pid of the session's process; zero if the process has just ended.
pid_t pid_of(const StatusView& view, SessionId id) {
  const auto known = view.pids.find(id);
  return known == view.pids.end() ? 0 : known->second;
}

// Returns true if the process has got a session since the survey, which is up to a second old.
bool has_come(const UnmanagedProcess& process, const StatusView& view, const Snapshot::Gpu& gpu) {
  return !process.has_session && std::any_of(gpu.sessions.begin(), gpu.sessions.end(),
                                             [&](SessionId id) { return pid_of(view, id) == process.pid; });
}

// Writes null values if surveys do not show the GPU.
void write_unmanaged(JsonText& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  json.field("surveyed", gpu.surveyed);
  Bytes sum;
  json.list("unmanaged", [&] {
    for (const UnmanagedProcess& process : view.unmanaged) {
      if (process.gpu != gpu.uuid || has_come(process, view, gpu)) continue;
      sum += process.memory;
      if (view.viewer && process.uid != *view.viewer && process.account != *view.viewer) continue;
      json.object([&] {
        json.field("pid", process.pid);
        json.field("uid", process.uid);
        json.field("job", process.job);
        json.field("bytes", process.memory.count);
      });
    }
  });
  json.field("unmanaged_bytes", value_if(gpu.surveyed, sum.count));
}

void write_meters(JsonText& json, const StatusView& view, const GpuUuid& gpu) {
  const auto found = view.meters.find(gpu);
  const GpuMeters meters = found == view.meters.end() ? GpuMeters{} : found->second;
  json.field("utilization", value_if(meters.utilization.has_value(), meters.utilization.value_or(0) / 100.0));
  json.field("energy_joules", value_if(meters.energy.has_value(), joules(meters.energy.value_or(Energy{}))));
  json.field("unleased_energy_joules", joules(view.figures.energy().unleased(gpu)));
}

// Returns the tenant's number, or zero if the viewer may not see the tenant.
std::uint64_t number_of(const StatusView& view, TenantId id) {
  const auto known = view.tenants.all().find(id);
  return view.viewer && (known == view.tenants.all().end() || !view.shows(known->second)) ? 0 : id.value;
}

// The number of tenants on the GPU that the viewer may not see.
std::size_t hidden_on(const StatusView& view, const Snapshot::Gpu& gpu) {
  std::set<TenantId> hidden;
  for (const SessionId id : gpu.sessions)
    if (const TenantId tenant = view.state.find(id)->tenant; number_of(view, tenant) == 0)
      hidden.insert(tenant);
  return hidden.size();
}

void write_gpu(JsonText& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  Sum sum;
  std::set<TenantId> holders;
  bool contended = false;
  for (const SessionId id : gpu.sessions) {
    const Snapshot::Session& session = *view.state.find(id);
    sum.add(session);
    contended = contended || session.contended;
    if (view.core.leases().holds(session.tenant)) holders.insert(session.tenant);
  }
  std::uint64_t units = 0;
  for (const auto& [id, placement] : view.state.placements)
    if (std::count(placement.gpus.begin(), placement.gpus.end(), gpu.uuid) > 0) units += placement.units;
  auto name = view.gpu_names.find(gpu.uuid);
  json.field("uuid", format_gpu(gpu.uuid));
  json.field("name", name == view.gpu_names.end() ? "" : name->second);
  json.field("number", gpu.number);
  json.field("units", units);
  write_health(json, view, gpu);
  json.field("total_bytes", gpu.total.count);
  json.field("verified", !gpu.learned);
  json.field("capacity_bytes", gpu.capacity.count);
  json.field("usable_bytes", gpu.usable.count);
  json.field("promised_bytes", gpu.promised.count);
  sum.write(json);
  write_unmanaged(json, view, gpu);
  write_meters(json, view, gpu.uuid);
  json.field("contended", contended);
  json.field("policy", gpu.policy->name());
  json.field("quantum_seconds", seconds(gpu.turn.length));
  json.field("quantum_rule", name_of(gpu.turn.rule));
  json.field("handoff_seconds", seconds(gpu.handoff));
  const auto write_numbers = [&](const char* field, const auto& list) {
    json.list(field, [&] {
      for (const TenantId id : list) json.value(number_of(view, id));
    });
  };
  write_numbers("holders", holders);
  json.field("hidden_tenants", hidden_on(view, gpu));
  const Core::Queue queue = view.core.queue(gpu.uuid, view.now);
  write_numbers("queue", queue.waiting);
  json.field("turn_left_seconds",
             value_if(queue.turn_left.has_value(), seconds(queue.turn_left.value_or(Nanoseconds{}))));
  json.field("threads_left", gpu.threads_left);
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

// The exchanges of the tenant's programs; null if they had none.
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

// The last loss of a GPU of the tenant; null if none of its GPUs was lost.
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

// A job without sessions is shown between its steps, unless Slurm has reported the end of the job.
bool is_current(const StatusView& view, const TenantInfo& info) {
  if (info.sessions > 0 || view.state.placements.count(info.id) > 0) return true;
  return !info.over && info.last_seen > Nanoseconds{} && view.now - info.last_seen < kShowEnded;
}

void write_node(JsonText& json, const StatusView& view) {
  json.field("version", SHAREDGPU_VERSION);
  json.field("pid", getpid());
  json.field("socket", view.settings.socket);
  json.field("policy", view.settings.policy);
  json.field("quantum_seconds", seconds(view.settings.quantum));
  json.field("max_swap_overhead", view.settings.max_swap_overhead / 100);
  json.field("max_wait_seconds", seconds(view.settings.max_wait));
  const std::string per_unit = format_typed_sizes(view.settings.swap_per_unit);
  json.field("swap_per_unit", per_unit.empty() ? "unlimited" : per_unit);
  json.field("swap_per_unit_bytes", view.settings.swap_per_unit.common().value_or(Bytes{}).count);
  json.list("overrides", [&] {
    for (const Overrides::Entry& each : view.overrides.all())
      json.object([&] {
        json.field("section", each.section);
        json.field("key", each.key);
        json.field("value", each.value);
      });
  });
  json.field("recovering", view.state.recovering);
  json.field("own_tenants_only", view.viewer.has_value());
}

}  // namespace

std::string format_status(const StatusView& view) {
  JsonText json;
  json.object([&] {
    write_node(json, view);
    json.list("gpus", [&] {
      for (const Snapshot::Gpu& gpu : view.state.gpus) json.object([&] { write_gpu(json, view, gpu); });
    });
    json.list("tenants", [&] {
      for (const auto& [id, info] : view.tenants.all())
        if (view.shows(info) && is_current(view, info))
          json.object([&, &info = info] { write_tenant(json, view, info); });
    });
  });
  return json.take();
}

}  // namespace sharedgpu
