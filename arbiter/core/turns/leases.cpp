// SPDX-License-Identifier: Apache-2.0
// Leases. While a tenant runs, each of its steps with a session on a GPU holds a lease on this GPU.
// Each step's lease has its own entry in the lease book. Each grant and each release is an action for the
// ledger.
#include <algorithm>
#include <utility>
#include <vector>

#include "arbiter/core/turns/turn_machine.h"

namespace sharedgpu {
namespace {

// Returns true if the tenant has a session of the lease's step on the lease's GPU.
bool has_holder(const LeaseKey& key, const Tenant& tenant) {
  return std::any_of(tenant.sessions.begin(), tenant.sessions.end(),
                     [&](const Session* session) { return attached(session) && lease_of(*session) == key; });
}

}  // namespace

void TurnMachine::grant_lease(const Session& session) {
  const LeaseKey key = lease_of(session);
  const Epoch epoch = this->epoch(*session.tenant);
  if (leases_.grant(key, epoch, effects_.now()))
    effects_.put(RecordLease{.grant = true, .key = key, .epoch = epoch, .at = effects_.now()});
}

// Ends the tenant's open leases for which `ends` returns true. A lease in doubt ends at the last time at
// which it certainly was held.
template <class Ends>
void TurnMachine::release_leases(const Tenant& tenant, Ends ends) {
  std::vector<std::pair<LeaseKey, OpenLease>> ended;
  const auto& open = leases_.open();
  for (auto it = open.lower_bound({.tenant = tenant.id, .gpu = {}, .step = {}});
       it != open.end() && it->first.tenant == tenant.id; ++it)
    if (ends(it->first, it->second)) ended.emplace_back(it->first, it->second);
  for (const auto& [key, lease] : ended) {
    const Nanoseconds at = lease.doubted.value_or(effects_.now());
    leases_.release(key, at);
    effects_.put(RecordLease{.grant = false, .key = key, .epoch = lease.epoch, .at = at});
  }
}

void TurnMachine::sync_leases(const Tenant& tenant) {
  if (!resuming(tenant))
    release_leases(tenant, [&](const LeaseKey& key, const OpenLease&) { return !has_holder(key, tenant); });
  if (phase_of(tenant) != Phase::running) return;
  for (const Session* session : tenant.sessions)
    if (attached(session)) grant_lease(*session);
}

void TurnMachine::end_leases(const Tenant& tenant) {
  release_leases(tenant, [](const LeaseKey&, const OpenLease&) { return true; });
}

void TurnMachine::end_lost_leases(const Tenant& tenant) {
  release_leases(tenant, [](const LeaseKey&, const OpenLease& lease) { return lease.doubted.has_value(); });
}

void TurnMachine::detach(const Tenant& tenant, const std::optional<LeaseKey>& lease) {
  // Other sessions of the tenant may be about to reconnect. The lease stays open until they have reconnected,
  // or until the recovery period ends.
  if (resuming(tenant) && lease && !has_holder(*lease, tenant)) leases_.doubt(*lease, effects_.now());
  if (!resuming(tenant)) sync_leases(tenant);
}

}  // namespace sharedgpu
