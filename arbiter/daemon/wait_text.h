// SPDX-License-Identifier: Apache-2.0
// The line that tells the user of a job why the job waits for a GPU. Pure; any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "arbiter/core/core.h"
#include "arbiter/ledger/tenants.h"

namespace sharedgpu {

// Returns the time for which the tenant has waited for its turn without a break; nullopt if it does not wait.
std::optional<Nanoseconds> wait_of(const Snapshot::Tenant& tenant, const LeaseBook& leases, Nanoseconds now);

struct WaitView {
  const Snapshot& state;
  const Tenants& tenants;
  const LeaseBook& leases;
  // the user whose tenants may be named; nullopt: all tenants may be named
  std::optional<uid_t> viewer;
  Nanoseconds now{};
  // The tenants that wait for a GPU, in the order of their turns.
  std::function<std::vector<TenantId>(const GpuUuid&)> queue;
};

// `waiting` is a tenant of `view.state` that waits.
std::string describe_wait(const WaitView& view, const Snapshot::Tenant& waiting);

}  // namespace sharedgpu
