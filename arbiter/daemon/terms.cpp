// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/terms.h"

#include <algorithm>
#include <memory>

#include "arbiter/core/placement.h"
#include "arbiter/policy/registry.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::hours kLongestDeadline{24 * 365};

// Policies are stateless, so one instance of each policy serves all GPUs.
const Policy* policy_of(const std::string& name) {
  static const auto all = [] {
    std::map<std::string, std::unique_ptr<Policy>, std::less<>> policies;
    for (const std::string_view each : kPolicies) policies.emplace(each, make_policy(each));
    return policies;
  }();
  return all.at(name).get();
}

// The highest priority that a tenant may state. The user of a run may only lower its priority, because no
// trusted source has stated the priority.
std::int32_t highest(const TenantInfo& tenant, const Settings& settings) {
  return tenant.name.is_job() ? settings.max_priority : std::min(settings.max_priority, 0);
}

// Multiplies `each` by the tenant's units; zero if the product is too large.
Bytes of_units(const TenantInfo& tenant, Bytes each) {
  const std::uint64_t units = std::max(tenant.options.units, 1u);
  Bytes all;
  const bool is_too_much = __builtin_mul_overflow(each.count, units, &all.count) || all.count >> 62 != 0;
  return is_too_much ? Bytes{} : all;
}

// Returns true if the tenant has chosen the native backend, under which memory stays on the GPU.
bool never_swaps(const TenantInfo& tenant) {
  return tenant.options.backend_given != 0 && tenant.options.backend == Backend::native;
}

}  // namespace

// The options of the batch step are the job's options, and replace those of an earlier run. Another step may
// raise the units, and may set options that the job has not set. A step's smaller request must not lower the
// job's request.
JobOptions merged(const JobOptions& known, const RegisterJob& job) {
  if (job.step.step == kBatchStep || known.units == 0) return job.options;
  JobOptions options = known;
  options.units = std::max(known.units, job.options.units);
  if (known.memory == Bytes{}) options.memory = job.options.memory;
  if (known.priority == 0) options.priority = job.options.priority;
  if (known.deadline == Nanoseconds{}) options.deadline = job.options.deadline;
  if (known.share_request == 0) {
    options.share_request = job.options.share_request;
    options.share_limit = job.options.share_limit;
  }
  return options;
}

// If a job requests no share, its share of a GPU is its units on the GPU divided by UnitsPerGpu=.
Claims claims_of(const TenantInfo& tenant, const Settings& node) {
  const Settings settings = settings_of(node, tenant.job_class);
  const JobOptions& options = tenant.options;
  const std::uint32_t units = std::max(options.units, 1u);
  const bool stated = options.share_request != 0;
  const double request =
      stated ? options.share_request / 100.0
             : static_cast<double>(units_on_each(units, std::max(options.gpus, 1u))) / settings.units_per_gpu;
  const double limit = options.share_limit != 0 ? options.share_limit / 100.0 : 1;
  const std::int32_t own = std::clamp(options.priority, -kHighestPriority, highest(tenant, settings));
  return {.units = units,
          .priority = std::clamp(settings.priority + own, -kHighestPriority, kHighestPriority),
          .request = std::min({request, limit, settings.max_request / 100}),
          .limit = limit,
          .timed = stated,
          .deadline = std::clamp<Nanoseconds>(options.deadline, {}, kLongestDeadline)};
}

Bytes brought_now(const TenantInfo& tenant, const Settings& node) {
  if (node.swap_per_unit.entries.empty()) return RegisterJob::kUnlimited;
  const UnitMemory unit_memory(node.swap_per_unit, node.gpu_memory, node.units_per_gpu);
  if (!unit_memory.problem().empty()) return {};  // a size `auto` needs GpuMemory=
  return of_units(tenant, unit_memory.of({}).value_or(Bytes{}));
}

Bytes units_memory(const TenantInfo& tenant, const Settings& node, Bytes gpu) {
  if (never_swaps(tenant)) return {};
  if (tenant.brought == RegisterJob::kUnlimited) return {};
  if (tenant.brought != Bytes{}) return tenant.brought;
  TypedSizes gpu_memory = node.gpu_memory;
  if (gpu_memory.find({}) == nullptr) gpu_memory.entries.push_back({.type = {}, .size = gpu});
  const UnitMemory unit_memory(node.swap_per_unit, gpu_memory, node.units_per_gpu);
  return of_units(tenant, unit_memory.of({}).value_or(Bytes{}));
}

Bytes group_limit_of(const TenantInfo& run, Bytes stated, const Settings& node, RunGpus gpus) {
  const Bytes program = stated != Bytes{} ? stated : of_units(run, node.host_memory_per_unit);
  if (program == Bytes{} || never_swaps(run)) return program;
  const Bytes limited = units_memory(run, node, gpus.largest);
  if (limited == Bytes{} && gpus.all == Bytes{}) return {};
  return program + (limited != Bytes{} ? limited : gpus.all);
}

std::vector<std::string> excessive_requests(const TenantInfo& tenant, const Settings& node) {
  const Settings settings = settings_of(node, tenant.job_class);
  const JobOptions& options = tenant.options;
  std::vector<std::string> cut;
  if (options.share_request > settings.max_request)
    cut.push_back("asks for a share of " + std::to_string(options.share_request) +
                  "%, but gets only MaxRequest");
  if (tenant.name.is_job() && options.priority > settings.max_priority)
    cut.push_back("asks for priority " + std::to_string(options.priority) + ", but gets only MaxPriority");
  return cut;
}

Rules rules_of(const Settings& settings) {
  return {.policy = policy_of(settings.policy),
          .turns = {.fixed = settings.quantum,
                    .max_overhead = settings.max_swap_overhead / 100,
                    .max_wait = settings.max_wait},
          .all_timed = settings.shares == Shares::units,
          .by_threads = settings.mps};
}

NodeTuning node_tuning_of(const Settings& settings) {
  return {.idle_release = settings.idle_release,
          .most_overuse = settings.max_overuse,
          .cancel_overuse = settings.on_overuse == Measure::cancel};
}

Partitions partitions_of(const Snapshot& state, const Tenants& tenants) {
  std::map<GpuUuid, std::vector<TenantId>> users;
  for (const Snapshot::Session& session : state.sessions)
    if (session.gpu) users[*session.gpu].push_back(session.tenant);
  for (const auto& [tenant, placement] : state.placements)
    for (const GpuUuid& gpu : placement.gpus) users[gpu].push_back(tenant);
  const auto partition_of = [&](TenantId id) -> std::string {
    const auto known = tenants.all().find(id);
    return known == tenants.all().end() ? "" : known->second.job_class.partition;
  };
  Partitions partitions;
  for (const auto& [gpu, ids] : users) {
    const std::string first = partition_of(ids.front());
    const bool one =
        std::all_of(ids.begin(), ids.end(), [&](TenantId id) { return partition_of(id) == first; });
    if (one && !first.empty()) partitions[gpu] = first;
  }
  return partitions;
}

Settings settings_on(const Snapshot::Gpu& gpu, const Settings& node, const Partitions& partitions) {
  const auto known = partitions.find(gpu.uuid);
  return settings_of(node, gpu.number, gpu.uuid,
                     known == partitions.end() ? std::string_view{} : known->second);
}

// If no section of the settings applies to a GPU, the node's rules apply.
RulesSet rules_of(const Snapshot& state, const Settings& node, const Partitions& partitions) {
  RulesSet rules{.node = rules_of(node)};
  if (node.sections.empty()) return rules;
  for (const Snapshot::Gpu& gpu : state.gpus)
    rules.own[gpu.uuid] = rules_of(settings_on(gpu, node, partitions));
  return rules;
}

}  // namespace sharedgpu
