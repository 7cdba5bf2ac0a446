// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/node_status.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::json;

Bytes size_in(const Json& json, const char* field) { return Bytes{json.value(field, std::uint64_t{0})}; }

// The answer of an older arbiter lacks some fields, and some fields may be null.
template <class Value>
std::optional<Value> optional_in(const Json& json, const char* field) {
  const auto found = json.find(field);
  return found == json.end() || found->is_null() ? std::nullopt : std::optional(found->get<Value>());
}

template <class Value>
std::vector<Value> list_in(const Json& json, const char* field) {
  return optional_in<std::vector<Value>>(json, field).value_or(std::vector<Value>{});
}

NodeStatus::Gpu gpu_in(const Json& json) {
  NodeStatus::Gpu gpu;
  gpu.number = json.value("number", std::uint64_t{0});
  gpu.uuid = json.value("uuid", "");
  gpu.name = json.value("name", "");
  gpu.condition = json.value("condition", "healthy");
  gpu.fault = optional_in<std::string>(json, "fault").value_or("");
  gpu.drained = json.value("drained", false);
  gpu.policy = json.value("policy", "");
  gpu.capacity = size_in(json, "capacity_bytes");
  gpu.footprint = size_in(json, "footprint_bytes");
  gpu.resident = size_in(json, "resident_bytes");
  if (const auto unmanaged = optional_in<std::uint64_t>(json, "unmanaged_bytes"))
    gpu.unmanaged = Bytes{*unmanaged};
  gpu.turn = json.value("quantum_seconds", 0.0);
  gpu.handoff = json.value("handoff_seconds", 0.0);
  gpu.holders = list_in<std::uint64_t>(json, "holders");
  gpu.queue = list_in<std::uint64_t>(json, "queue");
  gpu.turn_left = optional_in<double>(json, "turn_left_seconds");
  return gpu;
}

NodeStatus::Tenant tenant_in(const Json& json) {
  NodeStatus::Tenant tenant;
  tenant.id = json.value("id", std::uint64_t{0});
  tenant.name = json.value("name", "");
  tenant.job = optional_in<std::uint32_t>(json, "job");
  tenant.uid = json.value("uid", 0u);
  tenant.units = json.value("units", std::uint64_t{1});
  tenant.priority = json.value("priority", std::int64_t{0});
  tenant.phase = json.value("state", "out");
  tenant.lease = json.value("lease", false);
  tenant.wants = json.value("wants", false);
  tenant.stopped = json.value("stopped", false);
  tenant.stuck = json.value("stuck", false);
  tenant.lease_seconds = json.value("lease_seconds", 0.0);
  tenant.waited = json.value("waited_seconds", 0.0);
  tenant.moving = json.value("entering_seconds", 0.0) + json.value("evicting_seconds", 0.0);
  tenant.leaving = json.value("leaving_seconds", 0.0);
  if (const auto overdue = optional_in<Json>(json, "overdue"))
    tenant.overdue = {.seconds = overdue->value("seconds", 0.0),
                      .waits_for = overdue->value("waits_for", "")};
  tenant.handoffs = json.value("handoffs", std::uint64_t{0});
  tenant.evicted = size_in(json, "evicted_bytes");
  tenant.restored = size_in(json, "restored_bytes");
  tenant.to_evict = size_in(json, "to_evict_bytes");
  tenant.footprint = size_in(json, "footprint_bytes");
  tenant.resident = size_in(json, "resident_bytes");
  tenant.host = size_in(json, "host_bytes");
  tenant.away = size_in(json, "away_bytes");
  if (const auto gang = optional_in<Json>(json, "gang"))
    tenant.nodes = gang->value("nodes", std::uint64_t{1});
  tenant.gpus = list_in<std::string>(json, "gpus");
  if (tenant.gpus.empty()) tenant.gpus = list_in<std::string>(json, "placed");
  return tenant;
}

}  // namespace

std::string NodeStatus::Tenant::state() const {
  if (stopped) return "stopped";
  if (phase == "out") return wants ? "waiting" : "idle";
  return phase;
}

const NodeStatus::Tenant* NodeStatus::find(std::uint64_t id) const {
  const auto found =
      std::find_if(tenants.begin(), tenants.end(), [&](const Tenant& its) { return its.id == id; });
  return found == tenants.end() ? nullptr : &*found;
}

std::string parse_status(const std::string& text, NodeStatus& status) {
  try {
    const Json json = Json::parse(text);
    NodeStatus read;
    read.version = json.value("version", "");
    read.policy = json.value("policy", "");
    read.recovering = json.value("recovering", false);
    for (const Json& gpu : json.at("gpus")) read.gpus.push_back(gpu_in(gpu));
    for (const Json& tenant : json.at("tenants")) read.tenants.push_back(tenant_in(tenant));
    status = std::move(read);
    return {};
  } catch (const Json::exception& failure) {
    return std::string("the arbiter's answer is not understood: ") + failure.what();
  }
}

}  // namespace sharedgpu::cli
