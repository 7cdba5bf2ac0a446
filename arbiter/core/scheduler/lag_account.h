// SPDX-License-Identifier: Apache-2.0
// The formula that computes a tenant's account from its activity. All policies use this formula, with
// different AccountRules. Pure.
#pragma once

#include "arbiter/policy/account_rules.h"

namespace sharedgpu {

// A tenant's activity and its circumstances. The interval ends when one of these values changes. An account
// is updated at each change, even at a change that the account's rules ignore, so that rounding does not
// depend on the rules.
struct ActivityInterval {
  bool pauses = false;    // the tenant has no lease and asks for none
  bool pays = false;      // the tenant has a lease, and others wait
  unsigned sets = 1;      // number of running sets that take turns if all tenants want a turn
  Nanoseconds turn{};     // length of a turn
  bool comes_in = false;  // the tenant is entering, and other tenants wait
  bool overuses = false;  // the tenant has a lease although its turn is over
  unsigned holders = 1;   // number of tenants of the tenant's domain that have a lease or are entering
  double share = 1;       // the tenant's fraction of the domain's time; zero while no tenant waits
  bool counted = false;   // some tenants have to take turns, as memory is short or a tenant is exclusive
  bool holds = false;     // the tenant has a lease
  unsigned leases = 0;    // number of tenants with a lease in the tenant's domain
  // The fraction of the GPU's time that shares() gives to this tenant among the tenants that have or want a
  // lease on this GPU. If the tenant uses several GPUs: the smallest of these fractions. In a pause, `due`
  // keeps its last value. Zero while the tenant neither pauses nor competes for time (Accounts::Stake).
  double due = 0;
  // The sum of `due` of all tenants that have a lease on the same GPU; if the tenant uses several GPUs, the
  // smallest of these sums.
  double due_to_holders = 0;
  double limit = 1;  // the limit of the tenant's Claims
  bool operator==(const ActivityInterval&) const = default;
};

// Returns the lag of a tenant that had the lag `lag` and then the activity `did` for `time`. If `time` is
// zero, the lag is only clamped to its present bounds.
Nanoseconds lag_after(const AccountRules& rules, Nanoseconds lag, const ActivityInterval& did,
                      Nanoseconds time);

}  // namespace sharedgpu
