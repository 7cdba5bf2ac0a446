// SPDX-License-Identifier: Apache-2.0
// The terms on which jobs share GPUs: how much of the jobs' requests the site's settings grant, and the rules
// of each GPU.
//
// Pure functions; any thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "arbiter/core/events.h"
#include "arbiter/ledger/tenants.h"
#include "config/settings.h"
#include "protocol/step_names.h"

namespace sharedgpu {

// Returns the options of a job after a step has registered with its own options.
JobOptions merged(const JobOptions& known, const RegisterJob& job);

// The entitlement of a tenant. The priority of a job is the sum of the priorities of its QOS, its partition
// and its own option.
Claims claims_of(const TenantInfo& tenant, const Settings& node);

// The host memory that the current SwapPerUnit= gives to the tenant's units. Zero if the size is auto and
// GpuMemory= does not state the memory of the GPUs. RegisterJob::kUnlimited if SwapPerUnit= is not set.
Bytes brought_now(const TenantInfo& tenant, const Settings& node);

// The host memory that the tenant's units give to the tenant. The tenant's swap is limited to this amount.
// Zero: unlimited, or the tenant has chosen the native backend and so never swaps. The amount is
// TenantInfo::brought, which was computed when the tenant got its units. If TenantInfo::brought is zero, the
// current SwapPerUnit= applies. `gpu`: the memory of the tenant's largest GPU, used if the size is `auto` and
// GpuMemory= does not state the GPU's memory.
Bytes units_memory(const TenantInfo& tenant, const Settings& node, Bytes gpu);

// The GPUs of a run, for the limit of its control group.
struct RunGpus {
  Bytes largest;  // the memory of the run's largest GPU
  Bytes all;      // the memory of all GPUs that the run may see
};
// The limit of a run's control group: the host memory of its program (`stated`, or else by
// HostMemoryPerUnit=) plus the host memory of its units. For a run with the native backend, the units add
// nothing. If the units set no limit, the memory of all the run's GPUs is added, since the run cannot evict
// more memory than its GPUs have. Zero: the run gets no group, because no limit is stated, or because the
// limit depends on GPUs and no GPU is known.
Bytes group_limit_of(const TenantInfo& run, Bytes stated, const Settings& node, RunGpus gpus);

// The requests of a tenant that exceed what the site allows, for the log.
std::vector<std::string> excessive_requests(const TenantInfo& tenant, const Settings& node);

Rules rules_of(const Settings& settings);
NodeTuning node_tuning_of(const Settings& settings);

// The partition of each GPU whose tenants all belong to the same partition. Tenants that are placed on the
// GPU count, even if they have no process yet.
using Partitions = std::map<GpuUuid, std::string>;
Partitions partitions_of(const Snapshot& state, const Tenants& tenants);

// The settings that apply to a GPU: the node's settings, changed by the sections about the GPU or its
// partition.
Settings settings_on(const Snapshot::Gpu& gpu, const Settings& node, const Partitions& partitions);
RulesSet rules_of(const Snapshot& state, const Settings& node, const Partitions& partitions);

}  // namespace sharedgpu
