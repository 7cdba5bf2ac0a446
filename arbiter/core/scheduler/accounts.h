// SPDX-License-Identifier: Apache-2.0
// The accounts of tenants. A tenant's account is the GPU time by which the tenant lags behind its share. The
// account is negative if the tenant has had more than its share.
//
// An ActivityInterval describes what a tenant does and its circumstances, and lasts until these change. An
// account is computed when it is read, from this interval and the AccountRules of the tenant's policy
// (lag_account.h). Not thread-safe.
#pragma once

#include <map>
#include <string_view>
#include <vector>

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/scheduler/deadline_limits.h"
#include "arbiter/core/scheduler/lag_account.h"
#include "arbiter/core/turns/turn_machine.h"
#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Accounts {
 public:
  Accounts(const Presence& presence, const TurnMachine& turns, const DeadlineLimits& limits,
           const Effects& effects)
      : presence_(presence), turns_(turns), limits_(limits), effects_(effects) {}

  // Call when a tenant has come. If the tenant ended earlier and left a debt, the new account begins with
  // this debt.
  void add(const Tenant& tenant, const Policy& policy);
  void add(const Gpu& gpu) { due_to_holders_.begin(gpu); }
  // Call when the tenant's last session has ended. The tenant's debt is kept for a while; otherwise a job of
  // many short processes could exceed its limit.
  void keep(const Tenant& tenant);
  // Returns true if this is another policy than before; the account then starts at zero, or with a debt that
  // was kept under this policy.
  bool set_policy(const Tenant& tenant, const Policy& policy);

  Nanoseconds lag(const Tenant& tenant) const;
  void charge(const Tenant& tenant, Nanoseconds price);

  // The circumstances that are the same for all tenants of a domain.
  struct Common {
    unsigned sets = 1;   // number of running sets that there would be if all tenants wanted to run
    Nanoseconds turn{};  // length of a turn
    bool contended = false;
    bool counted = false;         // some tenants of the domain have to take turns
    bool shares_changed = false;  // the shares of tenants may have changed
  };
  // Records a new ActivityInterval for each tenant whose activity has changed.
  void update(const Domain& domain, const Common& common);

  // share(): the tenant's fraction of its domain's time. due(): the tenant's fraction of a GPU's time; if the
  // tenant uses several GPUs, the smallest of these fractions.
  double share(const Tenant& tenant) const { return rows_[tenant].share; }
  double due(const Tenant& tenant) const { return rows_[tenant].due; }
  const ActivityInterval& activity(const Tenant& tenant) const { return rows_[tenant].activity; }

 private:
  struct Stake {
    bool enters = false;
    bool holds = false;     // the tenant holds a lease
    bool competes = false;  // the tenant has, or waits for, a share of the time
  };
  struct Row {
    const Policy* policy = nullptr;
    Nanoseconds balance{};  // the account's balance at the time `at`
    Nanoseconds at{};
    ActivityInterval activity;  // since `at`
    Stake stake;
    double due = 0;
    double share = 0;
  };
  struct Due {
    double share = 0;
    double due = 0;
  };
  struct Kept {
    std::string_view policy;
    Nanoseconds balance{};
    Nanoseconds at{};
    ActivityInterval pauses;  // since `at`
  };

  void take_kept(const Tenant& tenant);
  void bring_up_to_date(Row& row) const;
  Nanoseconds balance_now(const Row& row) const;
  Stake stake_of(const Tenant& tenant) const;
  std::vector<Due> divide(const Domain& domain) const;
  void sum_due_to_holders(const Domain& domain);
  ActivityInterval activity_of(const Tenant& tenant, const ActivityInterval& common) const;

  const Presence& presence_;
  const TurnMachine& turns_;
  const DeadlineLimits& limits_;
  const Effects& effects_;
  Table<Tenant, Row> rows_;
  Table<Gpu, double> due_to_holders_;  // sum of `due` of the tenants that have a lease on the GPU
  std::map<TenantId, Kept> kept_;      // accounts of tenants that have ended
};

}  // namespace sharedgpu
