// SPDX-License-Identifier: Apache-2.0
// The one formula for the accounts of tenants under all policies, which differ by their AccountRules: it
// computes an account from a tenant's activity. Pure.
#pragma once

#include "arbiter/policy/account_rules.h"

namespace sharedgpu {

// The activity of a tenant and its circumstances, until they change. An account is brought up to date at each
// change, whatever its rules count: so it does not depend on them when amounts are rounded.
struct ActivityInterval {
  bool pauses = false;    // has no lease and asks for none
  bool pays = false;      // has a lease, and others wait
  unsigned sets = 1;      // running sets that take turns where all of the tenants want one
  Nanoseconds turn{};     // how long one is
  bool comes_in = false;  // is being brought in, and others wait
  bool overuses = false;  // has a lease though its turn is over
  unsigned holders = 1;   // tenants that have a lease or are being brought in, on its GPUs
  double share = 1;       // of the domain's time, where others wait
  // If some have to take turns, for lack of memory or because they are exclusive:
  bool counted = false;  // they do
  bool holds = false;    // has a lease
  unsigned leases = 0;   // tenants that have one, on any GPU of its domain
  double due = 0;  // its part of the time, by shares(), of those that have a lease or ask for one on the
                   // GPU where that is least; in a pause, what it was last
  double due_to_holders =
      0;             // where it has a lease: the sum for all that have one there; where that is least
  double limit = 1;  // of its Claims
  bool operator==(const ActivityInterval&) const = default;
};

// A tenant's lag after `time` more, in which it did as `did` says. Zero time: within the bounds as they are.
Nanoseconds lag_after(const AccountRules& rules, Nanoseconds lag, const ActivityInterval& did,
                      Nanoseconds time);

}  // namespace sharedgpu
