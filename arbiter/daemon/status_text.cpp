// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/status_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "arbiter/daemon/processes.h"
#include "protocol/backend_names.h"
#include "protocol/gpu_names.h"
#include "protocol/step_names.h"

namespace sharedgpu {
namespace {

using Json = nlohmann::ordered_json;

// The time for which a job without sessions is shown between its steps, unless Slurm has told that it is
// over.
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

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json size_or_null(std::optional<Bytes> size) { return size ? Json(size->count) : Json(nullptr); }

void write_health(Json& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  const auto known = view.health.find(gpu.uuid);
  const GpuState state = known == view.health.end() ? GpuState() : known->second;
  json["condition"] = name_of(gpu.condition);
  json["fault"] = text_or_null(state.fault);
  json["drained"] = gpu.drained;
  json["drain_reason"] = text_or_null(state.drain.value_or(""));
}

struct Sum {
  MemoryUse use;
  void add(const MemoryUse& more) {
    use.swappable += more.swappable;
    use.resident += more.resident;
    use.pinned += more.pinned;
    use.context += more.context;
    use.host += more.host;
  }
  void write(Json& json) const {
    json["footprint_bytes"] = use.footprint().count;
    json["resident_bytes"] = (use.resident + use.pinned).count;
    json["pinned_bytes"] = use.pinned.count;
    json["context_bytes"] = use.context.count;
    json["host_bytes"] = use.host.count;
  }
};

// Returns true if the process has got a session since the survey, which is up to a second old.
bool has_come(const UnmanagedProcess& process, const StatusView& view, const Snapshot::Gpu& gpu) {
  return !process.has_session && std::any_of(gpu.sessions.begin(), gpu.sessions.end(), [&](SessionId id) {
    const auto pid = view.pids.find(id);
    return pid != view.pids.end() && pid->second == process.pid;
  });
}

// Writes null values if surveys do not show the GPU.
void write_unmanaged(Json& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  json["surveyed"] = gpu.surveyed;
  Json processes = Json::array();
  Bytes sum;
  for (const UnmanagedProcess& process : view.unmanaged) {
    if (process.gpu != gpu.uuid || has_come(process, view, gpu)) continue;
    sum += process.memory;
    if (view.viewer && process.uid != *view.viewer && process.account != *view.viewer) continue;
    processes.push_back({{"pid", process.pid},
                         {"uid", process.uid},
                         {"job", process.job ? Json(*process.job) : Json(nullptr)},
                         {"bytes", process.memory.count}});
  }
  json["unmanaged_bytes"] = gpu.surveyed ? Json(sum.count) : Json(nullptr);
  json["unmanaged"] = processes;
}

void write_meters(Json& json, const StatusView& view, const GpuUuid& gpu) {
  const auto found = view.meters.find(gpu);
  const GpuMeters meters = found == view.meters.end() ? GpuMeters{} : found->second;
  json["utilization"] = meters.utilization ? Json(*meters.utilization / 100.0) : Json(nullptr);
  json["energy_joules"] = meters.energy ? Json(joules(*meters.energy)) : Json(nullptr);
  json["unleased_energy_joules"] = joules(view.figures.energy().unleased(gpu));
}

// Returns the tenant's number, or zero for a tenant that is not shown.
std::uint64_t number_of(const StatusView& view, TenantId id) {
  const auto known = view.tenants.all().find(id);
  return view.viewer && (known == view.tenants.all().end() || !view.shows(known->second)) ? 0 : id.value;
}

// The number of tenants with sessions on the GPU that are not shown.
std::size_t hidden_on(const StatusView& view, const Snapshot::Gpu& gpu) {
  std::set<TenantId> hidden;
  for (const SessionId id : gpu.sessions)
    if (const TenantId tenant = view.state.find(id)->tenant; number_of(view, tenant) == 0)
      hidden.insert(tenant);
  return hidden.size();
}

Json gpu_json(const StatusView& view, const Snapshot::Gpu& gpu) {
  Sum sum;
  std::set<TenantId> holders;
  bool contended = false;
  for (const SessionId id : gpu.sessions) {
    const Snapshot::Session& session = *view.state.find(id);
    sum.add(session.use);
    contended = contended || session.contended;
    if (view.core.leases().holds(session.tenant)) holders.insert(session.tenant);
  }
  std::uint64_t units = 0;
  for (const auto& [id, placement] : view.state.placements)
    if (std::count(placement.gpus.begin(), placement.gpus.end(), gpu.uuid) > 0) units += placement.units;
  auto name = view.gpu_names.find(gpu.uuid);
  Json json;
  json["uuid"] = format_gpu(gpu.uuid);
  json["name"] = name == view.gpu_names.end() ? "" : name->second;
  json["number"] = gpu.number;
  json["units"] = units;
  write_health(json, view, gpu);
  json["total_bytes"] = gpu.total.count;
  json["verified"] = !gpu.learned;
  json["capacity_bytes"] = gpu.capacity.count;
  json["usable_bytes"] = gpu.usable.count;
  json["promised_bytes"] = gpu.promised.count;
  sum.write(json);
  write_unmanaged(json, view, gpu);
  write_meters(json, view, gpu.uuid);
  json["contended"] = contended;
  json["policy"] = gpu.policy->name();
  json["quantum_seconds"] = seconds(gpu.turn.length);
  json["quantum_rule"] = name_of(gpu.turn.rule);
  json["handoff_seconds"] = seconds(gpu.handoff);
  json["holders"] = Json::array();
  for (const TenantId holder : holders) json["holders"].push_back(number_of(view, holder));
  json["hidden_tenants"] = hidden_on(view, gpu);
  const Core::Queue queue = view.core.queue(gpu.uuid, view.now);
  json["queue"] = Json::array();
  for (const TenantId tenant : queue.waiting) json["queue"].push_back(number_of(view, tenant));
  json["turn_left_seconds"] = queue.turn_left ? Json(seconds(*queue.turn_left)) : Json(nullptr);
  json["threads_left"] = gpu.threads_left;
  return json;
}

Json name_or_null(const char* name) { return *name == '\0' ? Json(nullptr) : Json(name); }

void write_terms(Json& json, const TenantInfo& info, const Snapshot::Tenant* tenant) {
  json["id"] = info.id.value;
  json["name"] = info.label();
  json["job"] = info.name.is_job() ? Json(info.name.job) : Json(nullptr);
  json["array_job"] = info.element.array != 0 ? Json(info.element.array) : Json(nullptr);
  json["array_index"] = info.element.array != 0 ? Json(info.element.index) : Json(nullptr);
  json["uid"] = info.uid;
  json["partition"] = name_or_null(info.job_class.partition);
  json["qos"] = name_or_null(info.job_class.qos);
  json["units"] = std::max(info.options.units, 1u);
  const Claims stated = tenant == nullptr ? Claims{} : tenant->stated;
  json["priority"] = stated.priority;
  json["share_request"] = stated.request;
  json["share_limit"] = stated.limit;
  json["share_allowed"] = tenant == nullptr ? stated.limit : tenant->claims.limit;
  json["share_due"] = tenant == nullptr ? 0 : tenant->due_now;
  json["deadline_seconds"] = seconds(info.options.deadline);
  json["deadlines_met"] = tenant == nullptr ? 0 : tenant->deadlines.met;
  json["deadlines_missed"] = tenant == nullptr ? 0 : tenant->deadlines.missed;
  json["memory_limit_bytes"] = info.options.memory.count;
}

// Returns what keeps an overdue tenant, for which other tenants wait, from leaving the GPU.
const char* awaited(const StatusView& view, const Snapshot::Tenant& tenant) {
  if (tenant.overdue->stopped) return "stopped";
  if (tenant.overdue->evicts) return "eviction";
  const bool answers = std::none_of(tenant.sessions.begin(), tenant.sessions.end(), [&](SessionId id) {
    const Snapshot::Session& session = *view.state.find(id);
    return session.gpu == tenant.overdue->gpu && !session.drained && view.deaf.count(id) > 0;
  });
  return answers ? "work" : "answer";
}

// The free host memory of a process of the tenant, if the process falsely claims that it cannot evict for
// lack of host memory. Null if no process of the tenant makes this claim, or if the claim may be true.
Json free_host(const StatusView& view, const Snapshot::Tenant& tenant) {
  Json least;
  for (const SessionId id : tenant.sessions)
    if (const auto found = view.refuted.find(id); found != view.refuted.end())
      if (least.is_null() || found->second.count < least) least = found->second.count;
  return least;
}

Json overdue_json(const StatusView& view, const Snapshot::Tenant* tenant) {
  if (tenant == nullptr || !tenant->overdue) return nullptr;
  return Json{{"seconds", seconds(view.now - tenant->overdue->since)},
              {"gpu", format_gpu(tenant->overdue->gpu)},
              {"waits_for", awaited(view, *tenant)},
              {"free_host_bytes", free_host(view, *tenant)}};
}

void write_time(Json& json, const StatusView& view, TenantId id, const Snapshot::Tenant* tenant) {
  const LeaseBook& leases = view.core.leases();
  json["state"] = name_of(tenant == nullptr ? Phase::out : tenant->phase);
  json["lease"] = leases.holds(id);
  json["lease_seconds"] = seconds(leases.of_tenant(id, view.now));
  const Figures figures = view.figures.of(id, {}, view.now);
  json["waited_seconds"] = seconds(figures.waited);
  json["overuse_seconds"] = seconds(figures.overuse);
  json["entering_seconds"] = seconds(figures.entering);
  json["evicting_seconds"] = seconds(figures.evicting);
  json["handoffs"] = figures.handoffs;
  json["evicted_bytes"] = figures.moved.evicted.count;
  json["restored_bytes"] = figures.moved.restored.count;
  json["highest_footprint_bytes"] = figures.footprint.count;
  json["highest_resident_bytes"] = figures.resident.count;
  json["to_evict_bytes"] = view.core.to_evict(id).count;
  json["wants"] = tenant != nullptr && tenant->wants;
  json["credit_seconds"] = tenant == nullptr ? 0 : seconds(tenant->lag);
  json["epoch"] = tenant == nullptr ? 0 : tenant->epoch.value;
  const bool leaving = tenant != nullptr && tenant->phase == Phase::leaving;
  json["leaving_seconds"] = leaving ? seconds(view.now - tenant->gates_closed) : 0.0;
  json["overdue"] = overdue_json(view, tenant);
}

// A tenant's sessions and their totals.
struct SessionsOf {
  Json each = Json::array();
  Sum sum;
  std::set<std::string> gpus;
  std::set<pid_t> pids;  // a process has a session for each of its GPUs
  bool stuck = false;
  bool stopped = false;

  void add(const StatusView& view, const TenantInfo& info, const Snapshot::Session& session) {
    const auto known = view.pids.find(session.id);
    const pid_t pid = known == view.pids.end() ? 0 : known->second;
    const bool is_stopped_now = pid != 0 && is_stopped(view.system, pid);
    const std::optional<Bytes> shown = session.evidence.shown();
    Json json;
    json["pid"] = pid;
    json["step"] = info.name.is_job() ? Json(format_step(session.step.step)) : Json(nullptr);
    json["gpu"] = session.gpu ? Json(format_gpu(*session.gpu)) : Json(nullptr);
    json["footprint_bytes"] = session.use.footprint().count;
    json["resident_bytes"] = (session.use.resident + session.use.pinned).count;
    json["allowed_bytes"] = session.resident_limit.count;
    json["host_bytes"] = session.use.host.count;
    json["device_bytes"] = shown ? Json(shown->count) : Json(nullptr);
    json["unseen_bytes"] = shown ? Json(session.evidence.absent().count) : Json(nullptr);
    json["gate_open"] = session.gate_open;
    json["stuck"] = session.stuck;
    json["stopped"] = is_stopped_now;
    each.push_back(json);
    sum.add(session.use);
    if (session.gpu) gpus.insert(format_gpu(*session.gpu));
    pids.insert(pid);
    stuck = stuck || session.stuck;
    stopped = stopped || is_stopped_now;
  }
};

// Writes the differences between the memory that the tenant reports and the memory that its processes have.
void write_differences(Json& json, const StatusView& view, TenantId id) {
  Bytes unreported;
  for (const UnmanagedProcess& process : view.unmanaged)
    if (process.tenant == id) unreported += process.memory;
  const auto found = view.overreported.find(id);
  const Overreported over = found == view.overreported.end() ? Overreported{} : found->second;
  json["unreported_bytes"] = unreported.count;
  json["unseen_bytes"] = over.device.unseen.count;
  json["overreported_bytes"] = over.device.disproved.count;
  json["overreported_host_bytes"] = over.host.count;
}

void write_sessions(Json& json, const StatusView& view, const TenantInfo& info,
                    const Snapshot::Tenant* tenant) {
  SessionsOf sessions;
  if (tenant != nullptr)
    for (const SessionId id : tenant->sessions) sessions.add(view, info, *view.state.find(id));
  Json placed = Json::array();
  if (auto found = view.state.placements.find(info.id); found != view.state.placements.end())
    for (const GpuUuid& gpu : found->second.gpus) placed.push_back(format_gpu(gpu));
  sessions.sum.write(json);
  const HostLimits limits = tenant == nullptr ? HostLimits{} : tenant->host;
  json["host_budget_bytes"] = size_or_null(limits.budget);
  json["units_memory_bytes"] = size_or_null(limits.units);
  json["job_memory_bytes"] = size_or_null(limits.job);
  json["stuck"] = sessions.stuck;
  json["stopped"] = sessions.stopped;
  json["gpus"] = sessions.gpus;
  json["placed"] = placed;
  json["pids"] = sessions.pids;
  json["sessions"] = sessions.each;
}

Json energy_of(const StatusView& view, const TenantInfo& info) {
  Json list = Json::array();
  for (const auto& [gpu, energy] : view.figures.energy().of(info.id))
    list.push_back(Json{{"gpu", format_gpu(gpu)}, {"joules", joules(energy)}});
  return list;
}

Json steps_of(const StatusView& view, const TenantInfo& info) {
  Json steps = Json::array();
  if (!info.name.is_job()) return steps;
  for (const auto& [step, lease] : view.core.leases().steps_of(info.id, view.now)) {
    const Traffic moved = view.figures.of(info.id, step).moved;
    steps.push_back(Json{{"step", format_step(step.step)},
                         {"lease_seconds", seconds(lease)},
                         {"evicted_bytes", moved.evicted.count},
                         {"restored_bytes", moved.restored.count}});
  }
  return steps;
}

// The control group of a run; null if the run has no control group.
Json group_json(const StatusView& view, const TenantInfo& tenant) {
  if (tenant.group_limit == Bytes{}) return nullptr;
  return Json{{"limit_bytes", tenant.group_limit.count},
              {"highest_bytes", view.figures.of(tenant.id).host.count}};
}

// The last loss of a GPU of the tenant; null if none of its GPUs was lost.
Json loss_json(const TenantInfo& tenant) {
  if (tenant.losses.empty()) return nullptr;
  const GpuLoss& loss = tenant.losses.back();
  return Json{{"gpu", format_gpu(loss.gpu)}, {"fault", loss.fault}};
}

// Returns null if the job has only one node, or if its turns are not coordinated with other nodes.
Json gang_json(const StatusView& view, TenantId id) {
  const GangMembers::Gang* gang = view.gangs.find(id);
  if (gang == nullptr) return nullptr;
  return Json{{"coordinator", gang->job.coordinator},
              {"nodes", gang->job.nodes},
              {"contact", name_of(gang->contact)},
              {"command", gang->order ? Json(name_of(gang->order->command)) : Json(nullptr)}};
}

Json tenant_json(const StatusView& view, const TenantInfo& info) {
  const Snapshot::Tenant* tenant = view.state.find(info.id);
  Json json;
  write_terms(json, info, tenant);
  write_time(json, view, info.id, tenant);
  write_sessions(json, view, info, tenant);
  write_differences(json, view, info.id);
  json["host_group"] = group_json(view, info);
  json["lost_gpu"] = loss_json(info);
  json["gang"] = gang_json(view, info.id);
  json["steps"] = steps_of(view, info);
  json["energy"] = energy_of(view, info);
  json["backend"] = info.options.backend_given != 0 ? Json(name_of(info.options.backend)) : Json(nullptr);
  return json;
}

// A job without sessions is shown between its steps, unless Slurm has reported the end of the job.
bool is_current(const StatusView& view, const TenantInfo& info) {
  if (info.sessions > 0 || view.state.placements.count(info.id) > 0) return true;
  return !info.over && info.last_seen > Nanoseconds{} && view.now - info.last_seen < kShowEnded;
}

}  // namespace

std::string format_status(const StatusView& view) {
  Json json;
  json["version"] = SHAREDGPU_VERSION;
  json["pid"] = getpid();
  json["socket"] = view.settings.socket;
  json["policy"] = view.settings.policy;
  json["quantum_seconds"] = seconds(view.settings.quantum);
  json["max_swap_overhead"] = view.settings.max_swap_overhead / 100;
  json["max_wait_seconds"] = seconds(view.settings.max_wait);
  const std::string per_unit = format_typed_sizes(view.settings.swap_per_unit);
  json["swap_per_unit"] = per_unit.empty() ? "unlimited" : per_unit;
  json["swap_per_unit_bytes"] = view.settings.swap_per_unit.common().value_or(Bytes{}).count;
  json["overrides"] = Json::array();
  for (const Overrides::Entry& each : view.overrides.all())
    json["overrides"].push_back({{"section", each.section}, {"key", each.key}, {"value", each.value}});
  json["recovering"] = view.state.recovering;
  json["own_tenants_only"] = view.viewer.has_value();
  json["gpus"] = Json::array();
  for (const Snapshot::Gpu& gpu : view.state.gpus) json["gpus"].push_back(gpu_json(view, gpu));
  json["tenants"] = Json::array();
  for (const auto& [id, info] : view.tenants.all())
    if (view.shows(info) && is_current(view, info)) json["tenants"].push_back(tenant_json(view, info));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace sharedgpu
