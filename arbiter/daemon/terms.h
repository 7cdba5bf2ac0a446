// SPDX-License-Identifier: Apache-2.0
// On which terms jobs share GPUs: what of their wishes the site's settings grant, and which rules hold where.
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

// What the job states once a step of it has stated that as well.
JobOptions merged(const JobOptions& known, const RegisterJob& job);

// What the tenant has a right to. Its priority is that of its QOS and partition, and on top what it states.
Claims claims_of(const TenantInfo& tenant, const Settings& node);

// For the log: what it asks for and does not get.
std::vector<std::string> cut_wishes(const TenantInfo& tenant, const Settings& node);

Rules rules_of(const Settings& settings);

// A partition for each GPU that only its jobs use or are placed on.
using Partitions = std::map<GpuUuid, std::string>;
Partitions partitions_of(const Snapshot& state, const Tenants& tenants);

// What a GPU is set to now.
Settings settings_on(const Snapshot::Gpu& gpu, const Settings& node, const Partitions& partitions);
RulesSet rules_of(const Snapshot& state, const Settings& node, const Partitions& partitions);

}  // namespace sharedgpu
