// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/status_text.h"

#include <unistd.h>

#include "arbiter/daemon/status_parts.h"

namespace sharedgpu {
namespace {

// A job without sessions and without a placement is shown for this time after the end of its last session,
// unless Slurm has reported the end of the job.
constexpr std::chrono::minutes kShowEnded{10};

// Returns true if the status shows the tenant.
bool is_current(const StatusView& view, const TenantInfo& info) {
  if (info.sessions > 0 || view.state.placements.count(info.id) > 0) return true;
  return !info.over && info.last_seen > Nanoseconds{} && view.now - info.last_seen < kShowEnded;
}

void write_node(JsonText& json, const StatusView& view) {
  json.field("version", SHAREDGPU_VERSION);
  json.field("pid", getpid());
  json.field("socket", view.settings.socket);
  json.field("policy", view.settings.policy);
  json.field("quantum_seconds", status::seconds(view.settings.quantum));
  json.field("max_swap_overhead", view.settings.max_swap_overhead / 100);
  json.field("max_wait_seconds", status::seconds(view.settings.max_wait));
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
      for (const Snapshot::Gpu& gpu : view.state.gpus)
        json.object([&] { status::write_gpu(json, view, gpu); });
    });
    json.list("tenants", [&] {
      for (const auto& [id, info] : view.tenants.all())
        if (view.shows(info) && is_current(view, info))
          json.object([&, &info = info] { status::write_tenant(json, view, info); });
    });
  });
  return json.take();
}

}  // namespace sharedgpu
