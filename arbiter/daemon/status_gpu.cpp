// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "arbiter/daemon/status_parts.h"
#include "protocol/gpu_names.h"

namespace sharedgpu::status {
namespace {

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

void write_health(JsonText& json, const StatusView& view, const Snapshot::Gpu& gpu) {
  const auto known = view.health.find(gpu.uuid);
  const GpuState state = known == view.health.end() ? GpuState() : known->second;
  json.field("condition", name_of(gpu.condition));
  json.field("fault", text_or_null(state.fault));
  json.field("drained", gpu.drained);
  json.field("drain_reason", text_or_null(state.drain.value_or("")));
}

// Returns true if the process has got a session since the survey, which is up to a second old.
bool has_come(const UnmanagedProcess& process, const StatusView& view, const Snapshot::Gpu& gpu) {
  return !process.has_session && std::any_of(gpu.sessions.begin(), gpu.sessions.end(),
                                             [&](SessionId id) { return pid_of(view, id) == process.pid; });
}

// If surveys do not show the GPU, the sum is null.
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

}  // namespace

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

}  // namespace sharedgpu::status
