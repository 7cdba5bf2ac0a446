// SPDX-License-Identifier: Apache-2.0
#include "exporter/families.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace sharedgpu::exporter {
namespace {

using Json = nlohmann::json;
using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
// nullopt: the arbiter does not know the value.
using Value = std::optional<double>;

// The value of a field; a flag is 0 or 1. nullopt if the field is null, or if an older arbiter lacks it.
Value field(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return std::nullopt;
  if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
  return found->get<double>();
}

// A metric with one value for each GPU or tenant.
struct Metric {
  const char* name;
  MetricType type;
  const char* help;
  const char* field;  // of the status; null: `value` computes the value
  Value (*value)(const Json& json) = nullptr;
};

Value lease_holders(const Json& gpu) { return static_cast<double>(gpu.at("holders").size()); }
Value handoff_seconds(const Json& gpu) {
  const Value mean = field(gpu, "handoff_seconds");
  return mean.value_or(0) > 0 ? mean : std::nullopt;  // zero: there has been no handoff
}
bool is_waiting(const Json& tenant) { return tenant.value("wants", false) && !tenant.value("lease", false); }
Value waits(const Json& tenant) { return is_waiting(tenant) ? 1 : 0; }
Value overdue_seconds(const Json& tenant) {
  const Json overdue = tenant.value("overdue", Json());
  return overdue.is_object() ? field(overdue, "seconds") : 0;
}
template <const char* kField>
Value deadlines(const Json& tenant) {
  return field(tenant, "deadline_seconds").value_or(0) > 0 ? field(tenant, kField) : std::nullopt;
}
constexpr char kMet[] = "deadlines_met";
constexpr char kMissed[] = "deadlines_missed";

constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;

constexpr Metric kGpuMetrics[] = {
    {"sharedgpu_gpu_memory_bytes", kGauge, "The memory of the GPU.", "total_bytes"},
    {"sharedgpu_gpu_capacity_bytes", kGauge, "The memory that the arbiter hands out to tenants.",
     "capacity_bytes"},
    {"sharedgpu_gpu_usable_bytes", kGauge,
     "The capacity less unmanaged memory and the part of contexts that does not fit beside the capacity.",
     "usable_bytes"},
    {"sharedgpu_gpu_footprint_bytes", kGauge, "The device memory that tenants have allocated.",
     "footprint_bytes"},
    {"sharedgpu_gpu_resident_bytes", kGauge, "The part of the footprints that is on the GPU now.",
     "resident_bytes"},
    {"sharedgpu_gpu_context_bytes", kGauge, "The memory that the driver uses for contexts of tenants.",
     "context_bytes"},
    {"sharedgpu_gpu_host_bytes", kGauge, "The host memory that tenants of the GPU hold for swap.",
     "host_bytes"},
    {"sharedgpu_gpu_unmanaged_bytes", kGauge,
     "Memory of processes that are no tenants, and hidden memory of tenants. Absent while there are no "
     "surveys.",
     "unmanaged_bytes"},
    {"sharedgpu_gpu_units", kGauge, "The units of the tenants placed on the GPU.", "units"},
    {"sharedgpu_gpu_utilization_ratio", kGauge,
     "The fraction of the last moments in which a kernel ran, by NVML. Absent while there are no surveys.",
     "utilization"},
    {"sharedgpu_gpu_energy_joules_total", kCounter,
     "The energy that the GPU has consumed since its driver was loaded, as of the last survey.",
     "energy_joules"},
    {"sharedgpu_gpu_unleased_energy_joules_total", kCounter,
     "The energy since the arbiter's start that counts for no tenant.", "unleased_energy_joules"},
    {"sharedgpu_gpu_drained", kGauge,
     "1 if an administrator has stopped the placement of tenants on the GPU.", "drained"},
    {"sharedgpu_gpu_contended", kGauge, "1 if a tenant waits for the GPU.", "contended"},
    {"sharedgpu_gpu_lease_holders", kGauge, "The tenants that hold a lease on the GPU.", nullptr,
     lease_holders},
    {"sharedgpu_gpu_turn_seconds", kGauge, "The current length of a turn while other tenants wait.",
     "quantum_seconds"},
    {"sharedgpu_gpu_handoff_seconds", kGauge,
     "The mean time of recent handoffs between the running sets. Absent before the first handoff.", nullptr,
     handoff_seconds},
};

constexpr Metric kTenantMetrics[] = {
    {"sharedgpu_tenant_lease_seconds_total", kCounter,
     "The time for which the tenant has held leases, summed over its GPUs.", "lease_seconds"},
    {"sharedgpu_tenant_wait_seconds_total", kCounter,
     "The time in which a thread of the tenant waited at the gate while the tenant held no lease.",
     "waited_seconds"},
    {"sharedgpu_tenant_overuse_seconds_total", kCounter,
     "The time in which the GPU worked for the tenant after its gates were closed.", "overuse_seconds"},
    {"sharedgpu_tenant_handoffs_total", kCounter, "How often the tenant has released its lease.", "handoffs"},
    {"sharedgpu_tenant_evicted_bytes_total", kCounter, "Bytes copied from the tenant's GPUs to host memory.",
     "evicted_bytes"},
    {"sharedgpu_tenant_restored_bytes_total", kCounter, "Bytes copied from host memory to the tenant's GPUs.",
     "restored_bytes"},
    {"sharedgpu_tenant_deadlines_met_total", kCounter,
     "Deadlines that the tenant has met. Absent for tenants without a deadline.", nullptr, deadlines<kMet>},
    {"sharedgpu_tenant_deadlines_missed_total", kCounter,
     "Deadlines that the tenant has missed. Absent for tenants without a deadline.", nullptr,
     deadlines<kMissed>},
    {"sharedgpu_tenant_units", kGauge, "The tenant's units.", "units"},
    {"sharedgpu_tenant_footprint_bytes", kGauge, "The device memory that the tenant has allocated.",
     "footprint_bytes"},
    {"sharedgpu_tenant_resident_bytes", kGauge, "The part of the footprint that is on the GPUs now.",
     "resident_bytes"},
    {"sharedgpu_tenant_host_bytes", kGauge, "The host memory that the tenant's processes hold for swap.",
     "host_bytes"},
    {"sharedgpu_tenant_host_budget_bytes", kGauge,
     "The most host memory that the tenant may use for swap. Absent if unlimited.", "host_budget_bytes"},
    {"sharedgpu_tenant_holds_lease", kGauge, "1 if the tenant holds a lease.", "lease"},
    {"sharedgpu_tenant_waits", kGauge, "1 if a thread of the tenant waits at the gate and it holds no lease.",
     nullptr, waits},
    {"sharedgpu_tenant_stuck", kGauge, "1 if the tenant cannot evict, mostly for lack of host memory.",
     "stuck"},
    {"sharedgpu_tenant_overdue_seconds", kGauge,
     "The time for which others have waited for the tenant to leave after its lease was revoked, otherwise "
     "0.",
     nullptr, overdue_seconds},
};

// A field as a label; empty if the field is null.
std::string text(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return {};
  return found->is_string() ? found->get<std::string>() : found->dump();
}

void add(MetricFamily& family, Labels labels, double value) {
  ClientMetric& metric = family.metric.emplace_back();
  metric.label = std::move(labels);
  if (family.type == MetricType::Counter)
    metric.counter.value = value;
  else
    metric.gauge.value = value;
}

MetricFamily one(const char* name, const char* help, Labels labels, double value) {
  MetricFamily family{.name = name, .help = help, .type = kGauge, .metric = {}};
  add(family, std::move(labels), value);
  return family;
}

std::vector<MetricFamily> about_exporter(bool arbiter_answers) {
  std::vector<MetricFamily> families;
  families.push_back(one("sharedgpu_up", "1 if the arbiter answers.", {}, arbiter_answers ? 1 : 0));
  families.push_back(
      one("sharedgpu_build_info", "The version of the exporter.", {{"version", SHAREDGPU_VERSION}}, 1));
  return families;
}

MetricFamily family_of(const Metric& metric, const Json& list, const char* label, const char* id) {
  MetricFamily family{.name = metric.name, .help = metric.help, .type = metric.type, .metric = {}};
  for (const Json& each : list)
    if (const Value value = metric.field != nullptr ? field(each, metric.field) : metric.value(each))
      add(family, {{label, text(each, id)}}, *value);
  return family;
}

MetricFamily gpu_info(const Json& gpus) {
  MetricFamily family{.name = "sharedgpu_gpu_info",
                      .help = "Always 1; the labels describe the GPU.",
                      .type = kGauge,
                      .metric = {}};
  for (const Json& gpu : gpus)
    add(family,
        {{"gpu", text(gpu, "number")},
         {"uuid", text(gpu, "uuid")},
         {"model", text(gpu, "name")},
         {"policy", text(gpu, "policy")}},
        1);
  return family;
}

MetricFamily gpu_condition(const Json& gpus) {
  MetricFamily family{.name = "sharedgpu_gpu_condition",
                      .help = "1 for the condition that the GPU is in, 0 for the others.",
                      .type = kGauge,
                      .metric = {}};
  for (const Json& gpu : gpus)
    for (const char* condition : {"healthy", "failing", "lost"})
      add(family, {{"gpu", text(gpu, "number")}, {"condition", condition}},
          text(gpu, "condition") == condition ? 1 : 0);
  return family;
}

MetricFamily gpu_queue(const Json& gpus, const Json& tenants) {
  MetricFamily family{.name = "sharedgpu_gpu_queue_length",
                      .help = "The tenants that wait for the GPU.",
                      .type = kGauge,
                      .metric = {}};
  std::map<std::string, unsigned> waiting;  // by UUID
  for (const Json& tenant : tenants)
    if (is_waiting(tenant))
      for (const Json& uuid : tenant.at("gpus")) ++waiting[uuid.get_ref<const std::string&>()];
  for (const Json& gpu : gpus) add(family, {{"gpu", text(gpu, "number")}}, waiting[text(gpu, "uuid")]);
  return family;
}

MetricFamily tenant_info(const Json& tenants, const UserName& user_name) {
  MetricFamily family{.name = "sharedgpu_tenant_info",
                      .help = "Always 1; the labels describe the tenant.",
                      .type = kGauge,
                      .metric = {}};
  for (const Json& tenant : tenants)
    add(family,
        {{"tenant", text(tenant, "id")},
         {"name", text(tenant, "name")},
         {"job_id", text(tenant, "job")},  // Prometheus itself has a label named job
         {"user", user_name(tenant.value("uid", uid_t{0}))},
         {"partition", text(tenant, "partition")},
         {"qos", text(tenant, "qos")}},
        1);
  return family;
}

// The numbers of the GPUs, by UUID.
using Numbers = std::map<std::string, std::string>;

MetricFamily tenant_gpu(const Json& tenants, const Numbers& numbers) {
  MetricFamily family{.name = "sharedgpu_tenant_gpu",
                      .help = "1 for each GPU that the tenant uses or is placed on.",
                      .type = kGauge,
                      .metric = {}};
  for (const Json& tenant : tenants) {
    std::set<std::string> its;
    for (const char* list : {"gpus", "placed"})
      for (const Json& uuid : tenant.at(list))
        if (const auto number = numbers.find(uuid.get_ref<const std::string&>()); number != numbers.end())
          its.insert(number->second);
    for (const std::string& gpu : its) add(family, {{"tenant", text(tenant, "id")}, {"gpu", gpu}}, 1);
  }
  return family;
}

MetricFamily tenant_energy(const Json& tenants, const Numbers& numbers) {
  MetricFamily family{.name = "sharedgpu_tenant_energy_joules_total",
                      .help = "The energy of the GPU that counts for the tenant's leases.",
                      .type = kCounter,
                      .metric = {}};
  for (const Json& tenant : tenants)
    for (const Json& energy : tenant.value("energy", Json::array()))
      if (const auto number = numbers.find(text(energy, "gpu")); number != numbers.end())
        add(family, {{"tenant", text(tenant, "id")}, {"gpu", number->second}},
            energy.at("joules").get<double>());
  return family;
}

}  // namespace

std::vector<MetricFamily> families_of(const Json& status, const UserName& user_name) {
  const Json& gpus = status.at("gpus");
  const Json& tenants = status.at("tenants");
  Numbers numbers;
  for (const Json& gpu : gpus) numbers[text(gpu, "uuid")] = text(gpu, "number");

  std::vector<MetricFamily> families = about_exporter(true);
  families.push_back(one("sharedgpu_arbiter_info", "The version of the arbiter.",
                         {{"version", text(status, "version")}}, 1));
  families.push_back(one("sharedgpu_recovering",
                         "1 while the arbiter waits for the sessions of the previous arbiter.", {},
                         field(status, "recovering").value_or(0)));
  families.push_back(gpu_info(gpus));
  for (const Metric& metric : kGpuMetrics) families.push_back(family_of(metric, gpus, "gpu", "number"));
  families.push_back(gpu_queue(gpus, tenants));
  families.push_back(gpu_condition(gpus));
  families.push_back(tenant_info(tenants, user_name));
  for (const Metric& metric : kTenantMetrics) families.push_back(family_of(metric, tenants, "tenant", "id"));
  families.push_back(tenant_gpu(tenants, numbers));
  families.push_back(tenant_energy(tenants, numbers));
  return families;
}

std::vector<MetricFamily> families_without_arbiter() { return about_exporter(false); }

}  // namespace sharedgpu::exporter
