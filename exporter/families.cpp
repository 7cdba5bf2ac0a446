// SPDX-License-Identifier: Apache-2.0
#include "exporter/families.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

namespace sharedgpu::exporter {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;
using Labels = std::vector<ClientMetric::Label>;
using Gpu = Status::Gpu;
using Tenant = Status::Tenant;

// A metric with one value for each GPU or tenant.
template <class Entry>
struct Metric {
  const char* name;
  MetricType type;
  const char* help;
  Value Entry::*field;  // the field of the status; null: `value` computes the value
  Value (*value)(const Entry& entry) = nullptr;
};

Value lease_holders(const Gpu& gpu) { return static_cast<double>(gpu.holders.size()); }
Value handoff_seconds(const Gpu& gpu) {
  return gpu.handoff_seconds.value_or(0) > 0 ? gpu.handoff_seconds : std::nullopt;  // zero: there was no
                                                                                    // handoff
}
bool is_waiting(const Tenant& tenant) {
  return tenant.wants.value_or(0) > 0 && tenant.lease.value_or(0) == 0;
}
Value waits(const Tenant& tenant) { return is_waiting(tenant) ? 1 : 0; }
Value overdue_seconds(const Tenant& tenant) { return tenant.overdue_seconds.value_or(0); }
template <Value Tenant::*kField>
Value deadlines(const Tenant& tenant) {
  return tenant.deadline_seconds.value_or(0) > 0 ? tenant.*kField : std::nullopt;
}

constexpr auto kGauge = MetricType::Gauge;
constexpr auto kCounter = MetricType::Counter;

constexpr Metric<Gpu> kGpuMetrics[] = {
    {"sharedgpu_gpu_memory_bytes", kGauge, "The memory of the GPU.", &Gpu::total_bytes},
    {"sharedgpu_gpu_capacity_bytes", kGauge, "The memory that the arbiter hands out to tenants.",
     &Gpu::capacity_bytes},
    {"sharedgpu_gpu_usable_bytes", kGauge,
     "The capacity less unmanaged memory and the part of contexts that does not fit beside the capacity.",
     &Gpu::usable_bytes},
    {"sharedgpu_gpu_footprint_bytes", kGauge, "The device memory that tenants have allocated.",
     &Gpu::footprint_bytes},
    {"sharedgpu_gpu_resident_bytes", kGauge, "The part of the footprints that is on the GPU now.",
     &Gpu::resident_bytes},
    {"sharedgpu_gpu_context_bytes", kGauge, "The memory that the driver uses for contexts of tenants.",
     &Gpu::context_bytes},
    {"sharedgpu_gpu_host_bytes", kGauge, "The host memory that tenants of the GPU hold for swap.",
     &Gpu::host_bytes},
    {"sharedgpu_gpu_unmanaged_bytes", kGauge,
     "Memory of processes without a session on the GPU, and hidden memory of tenants. Absent while there are "
     "no "
     "surveys.",
     &Gpu::unmanaged_bytes},
    {"sharedgpu_gpu_units", kGauge, "The units of the tenants placed on the GPU.", &Gpu::units},
    {"sharedgpu_gpu_utilization_ratio", kGauge,
     "NVML's utilization: the fraction of the last moments in which a kernel ran. Absent while there are no "
     "surveys.",
     &Gpu::utilization},
    {"sharedgpu_gpu_energy_joules_total", kCounter,
     "The energy that the GPU has consumed since its driver was loaded, as of the last survey.",
     &Gpu::energy_joules},
    {"sharedgpu_gpu_unleased_energy_joules_total", kCounter,
     "The energy since the arbiter's start that counts for no tenant.", &Gpu::unleased_energy_joules},
    {"sharedgpu_gpu_drained", kGauge,
     "1 if an administrator has stopped the placement of tenants on the GPU.", &Gpu::drained},
    {"sharedgpu_gpu_contended", kGauge, "1 if a tenant waits for the GPU.", &Gpu::contended},
    {"sharedgpu_gpu_lease_holders", kGauge, "The tenants that hold a lease on the GPU.", nullptr,
     lease_holders},
    {"sharedgpu_gpu_turn_seconds", kGauge, "The current length of a turn while other tenants wait.",
     &Gpu::quantum_seconds},
    {"sharedgpu_gpu_handoff_seconds", kGauge,
     "The mean time of recent handoffs between the running sets. Absent before the first handoff.", nullptr,
     handoff_seconds},
};

constexpr Metric<Tenant> kTenantMetrics[] = {
    {"sharedgpu_tenant_lease_seconds_total", kCounter,
     "The time for which the tenant has held leases, summed over its GPUs.", &Tenant::lease_seconds},
    {"sharedgpu_tenant_wait_seconds_total", kCounter,
     "The time in which a thread of the tenant waited at the gate while the tenant held no lease.",
     &Tenant::waited_seconds},
    {"sharedgpu_tenant_overuse_seconds_total", kCounter,
     "The time in which the GPU worked for the tenant after its gates were closed.",
     &Tenant::overuse_seconds},
    {"sharedgpu_tenant_handoffs_total", kCounter, "How often the tenant has released its lease.",
     &Tenant::handoffs},
    {"sharedgpu_tenant_evicted_bytes_total", kCounter, "Bytes copied from the tenant's GPUs to host memory.",
     &Tenant::evicted_bytes},
    {"sharedgpu_tenant_restored_bytes_total", kCounter, "Bytes copied from host memory to the tenant's GPUs.",
     &Tenant::restored_bytes},
    {"sharedgpu_tenant_exchange_evicted_bytes_total", kCounter,
     "Bytes copied to away memory in exchanges. Absent before the first exchange and the first slowed "
     "kernel.",
     &Tenant::exchange_evicted_bytes},
    {"sharedgpu_tenant_exchange_restored_bytes_total", kCounter,
     "Bytes copied from away memory to the GPU in exchanges. Absent before the first exchange and the first "
     "slowed kernel.",
     &Tenant::exchange_restored_bytes},
    {"sharedgpu_tenant_exchange_moving_seconds_total", kCounter,
     "The time in which exchanges moved memory. Absent before the first exchange and the first slowed "
     "kernel.",
     &Tenant::exchange_moving_seconds},
    {"sharedgpu_tenant_exchange_waited_seconds_total", kCounter,
     "The time for which threads of the tenant have waited for exchanges; each thread counts by itself. "
     "Absent before the first exchange and the first slowed kernel.",
     &Tenant::exchange_waited_seconds},
    {"sharedgpu_tenant_exchange_slowed_seconds_total", kCounter,
     "The additional time that kernels took because memory was away, estimated from the times of a few "
     "launches. Absent before the first exchange and the first slowed kernel.",
     &Tenant::exchange_slowed_seconds},
    {"sharedgpu_tenant_deadlines_met_total", kCounter,
     "Deadlines that the tenant has met. Absent for tenants without a deadline.", nullptr,
     deadlines<&Tenant::deadlines_met>},
    {"sharedgpu_tenant_deadlines_missed_total", kCounter,
     "Deadlines that the tenant has missed. Absent for tenants without a deadline.", nullptr,
     deadlines<&Tenant::deadlines_missed>},
    {"sharedgpu_tenant_units", kGauge, "The tenant's units.", &Tenant::units},
    {"sharedgpu_tenant_footprint_bytes", kGauge, "The device memory that the tenant has allocated.",
     &Tenant::footprint_bytes},
    {"sharedgpu_tenant_resident_bytes", kGauge, "The part of the footprint that is on the GPUs now.",
     &Tenant::resident_bytes},
    {"sharedgpu_tenant_host_bytes", kGauge, "The host memory that the tenant's processes hold for swap.",
     &Tenant::host_bytes},
    {"sharedgpu_tenant_away_bytes", kGauge,
     "The host memory that the tenant uses as memory beyond the GPUs. Not a part of the footprint.",
     &Tenant::away_bytes},
    {"sharedgpu_tenant_host_budget_bytes", kGauge,
     "The most host memory that the tenant may use for swap. Absent if unlimited.",
     &Tenant::host_budget_bytes},
    {"sharedgpu_tenant_holds_lease", kGauge, "1 if the tenant holds a lease.", &Tenant::lease},
    {"sharedgpu_tenant_waits", kGauge,
     "1 if a thread of the tenant waits at the gate and the tenant holds no lease.", nullptr, waits},
    {"sharedgpu_tenant_stuck", kGauge, "1 if the tenant cannot evict, mostly for lack of host memory.",
     &Tenant::stuck},
    {"sharedgpu_tenant_overdue_seconds", kGauge,
     "The time for which others have waited for the tenant to leave after its lease was revoked, otherwise "
     "0.",
     nullptr, overdue_seconds},
};

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

template <class Entry>
MetricFamily family_of(const Metric<Entry>& metric, const std::vector<Entry>& list, const char* label,
                       std::string Entry::*id) {
  MetricFamily family{.name = metric.name, .help = metric.help, .type = metric.type, .metric = {}};
  family.metric.reserve(list.size());
  for (const Entry& each : list)
    if (const Value value = metric.field != nullptr ? each.*metric.field : metric.value(each))
      add(family, {{label, each.*id}}, *value);
  return family;
}

MetricFamily gpu_info(const std::vector<Gpu>& gpus) {
  MetricFamily family{.name = "sharedgpu_gpu_info",
                      .help = "Always 1; the labels describe the GPU.",
                      .type = kGauge,
                      .metric = {}};
  for (const Gpu& gpu : gpus)
    add(family, {{"gpu", gpu.number}, {"uuid", gpu.uuid}, {"model", gpu.name}, {"policy", gpu.policy}}, 1);
  return family;
}

MetricFamily gpu_condition(const std::vector<Gpu>& gpus) {
  MetricFamily family{.name = "sharedgpu_gpu_condition",
                      .help = "1 for the condition that the GPU is in, 0 for the others.",
                      .type = kGauge,
                      .metric = {}};
  for (const Gpu& gpu : gpus)
    for (const char* condition : {"healthy", "failing", "lost"})
      add(family, {{"gpu", gpu.number}, {"condition", condition}}, gpu.condition == condition ? 1 : 0);
  return family;
}

MetricFamily gpu_queue(const std::vector<Gpu>& gpus, const std::vector<Tenant>& tenants) {
  MetricFamily family{.name = "sharedgpu_gpu_queue_length",
                      .help = "The tenants that wait for the GPU.",
                      .type = kGauge,
                      .metric = {}};
  std::map<std::string, unsigned> waiting;  // by UUID
  for (const Tenant& tenant : tenants)
    if (is_waiting(tenant))
      for (const std::string& uuid : tenant.gpus) ++waiting[uuid];
  for (const Gpu& gpu : gpus) add(family, {{"gpu", gpu.number}}, waiting[gpu.uuid]);
  return family;
}

// Prometheus rejects a whole answer for a single byte that is not UTF-8, and the name of a user may have any
// bytes.
std::string valid(const std::string& text) {
  const auto kReplace = nlohmann::json::error_handler_t::replace;
  return nlohmann::json::parse(nlohmann::json(text).dump(-1, ' ', false, kReplace));
}

MetricFamily tenant_info(const std::vector<Tenant>& tenants, const UserName& user_name) {
  MetricFamily family{.name = "sharedgpu_tenant_info",
                      .help = "Always 1; the labels describe the tenant.",
                      .type = kGauge,
                      .metric = {}};
  for (const Tenant& tenant : tenants)
    add(family,
        {{"tenant", tenant.id},
         {"name", tenant.name},
         {"job_id", tenant.job},  // Prometheus itself has a label named job
         {"user", valid(user_name(static_cast<uid_t>(tenant.uid.value_or(0))))},
         {"partition", tenant.partition},
         {"qos", tenant.qos}},
        1);
  return family;
}

// The numbers of the GPUs, by UUID.
using Numbers = std::map<std::string, std::string>;

MetricFamily tenant_gpu(const std::vector<Tenant>& tenants, const Numbers& numbers) {
  MetricFamily family{.name = "sharedgpu_tenant_gpu",
                      .help = "1 for each GPU that the tenant uses or is placed on.",
                      .type = kGauge,
                      .metric = {}};
  for (const Tenant& tenant : tenants) {
    std::set<std::string> its;
    for (const auto* list : {&tenant.gpus, &tenant.placed})
      for (const std::string& uuid : *list)
        if (const auto number = numbers.find(uuid); number != numbers.end()) its.insert(number->second);
    for (const std::string& gpu : its) add(family, {{"tenant", tenant.id}, {"gpu", gpu}}, 1);
  }
  return family;
}

MetricFamily tenant_energy(const std::vector<Tenant>& tenants, const Numbers& numbers) {
  MetricFamily family{.name = "sharedgpu_tenant_energy_joules_total",
                      .help = "The energy of the GPU that counts for the tenant's leases.",
                      .type = kCounter,
                      .metric = {}};
  for (const Tenant& tenant : tenants)
    for (const Status::Energy& energy : tenant.energy)
      if (const auto number = numbers.find(energy.gpu); number != numbers.end() && energy.joules)
        add(family, {{"tenant", tenant.id}, {"gpu", number->second}}, *energy.joules);
  return family;
}

}  // namespace

std::vector<MetricFamily> families_of(const Status& status, const UserName& user_name) {
  const std::vector<Gpu>& gpus = status.gpus;
  const std::vector<Tenant>& tenants = status.tenants;
  Numbers numbers;
  for (const Gpu& gpu : gpus) numbers[gpu.uuid] = gpu.number;

  std::vector<MetricFamily> families = about_exporter(true);
  families.push_back(
      one("sharedgpu_arbiter_info", "The version of the arbiter.", {{"version", status.version}}, 1));
  families.push_back(one("sharedgpu_recovering",
                         "1 while the arbiter waits for the sessions of the previous arbiter.", {},
                         status.recovering.value_or(0)));
  families.push_back(gpu_info(gpus));
  for (const auto& metric : kGpuMetrics) families.push_back(family_of(metric, gpus, "gpu", &Gpu::number));
  families.push_back(gpu_queue(gpus, tenants));
  families.push_back(gpu_condition(gpus));
  families.push_back(tenant_info(tenants, user_name));
  for (const auto& metric : kTenantMetrics)
    families.push_back(family_of(metric, tenants, "tenant", &Tenant::id));
  families.push_back(tenant_gpu(tenants, numbers));
  families.push_back(tenant_energy(tenants, numbers));
  return families;
}

std::vector<MetricFamily> families_without_arbiter() { return about_exporter(false); }

}  // namespace sharedgpu::exporter
