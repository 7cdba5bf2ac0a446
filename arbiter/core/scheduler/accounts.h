// SPDX-License-Identifier: Apache-2.0
// Tenants' accounts: how far each is behind what is due to it (positive) or ahead of it, in time of the GPU.
//
// What a tenant does is described by an ActivityInterval, which goes on until it changes; an account is
// brought up to date when it is read, by the AccountRules of its policy (lag_account.h). One thread at a
// time.
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

  // A tenant has come, perhaps again.
  void add(const Tenant& tenant, const Policy& policy);
  void add(const Gpu& gpu) { due_to_holders_.begin(gpu); }
  // Its last process has ended: a debt is kept for a while, or a limit would not bind a job of many short
  // processes.
  void keep(const Tenant& tenant);
  // Returns true if another policy computes the account from here on: the account begins at zero then.
  bool set_policy(const Tenant& tenant, const Policy& policy);

  Nanoseconds lag(const Tenant& tenant) const;
  void charge(const Tenant& tenant, Nanoseconds price);

  // The circumstances that the tenants of a domain share until one of them changes.
  struct Common {
    unsigned sets = 1;   // running sets, if all wanted to run
    Nanoseconds turn{};  // how long one lasts
    bool contended = false;
    bool counted = false;         // some have to take turns
    bool shares_changed = false;  // what is due to each may be another part
  };
  // Notes what each tenant does from now on.
  void update(const Domain& domain, const Common& common);

  // The part of the time that is due to it, of its domain's, and on the GPU where that is least.
  double share(const Tenant& tenant) const { return rows_[tenant].share; }
  double due(const Tenant& tenant) const { return rows_[tenant].due; }
  const ActivityInterval& activity(const Tenant& tenant) const { return rows_[tenant].activity; }

 private:
  struct Stake {
    bool enters = false;
    bool holds = false;     // a lease
    bool competes = false;  // a part of the time is due to it
  };
  struct Row {
    const Policy* policy = nullptr;
    Nanoseconds balance{};  // at:
    Nanoseconds at{};
    ActivityInterval activity;  // since then
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
    ActivityInterval pauses;  // since then
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
  Table<Gpu, double> due_to_holders_;  // the parts of those that have a lease there
  std::map<TenantId, Kept> kept_;      // of tenants that have ended
};

}  // namespace sharedgpu
