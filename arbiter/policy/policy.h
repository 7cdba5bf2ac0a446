// SPDX-License-Identifier: Apache-2.0
// A scheduling policy is an order and parameters: it ranks who waits, says who makes room for whom, and sets
// the mechanisms of the scheduler. It never touches memory.
//
// The core knows what is possible: what fits together, who is stuck, who has let go, who is idle. It asks a
// policy who is next of those that wait, and takes along who fits beside; whether those that run make room
// for them; and how long turns are. A policy is pure, it has no state and no clock: what it knows of a
// tenant's past is the tenant's lag, which the core keeps as AccountRules say, and what the core measures for
// all. So it can be exchanged at any moment. One file each; each says how long a tenant may wait at most.
// registry.h says how to add one.
#pragma once

#include <string_view>

#include "arbiter/policy/account_rules.h"
#include "arbiter/policy/entitlement.h"
#include "arbiter/policy/preemption.h"
#include "arbiter/policy/views.h"

namespace sharedgpu {

// What a policy sets of the scheduler's mechanisms.
struct PolicyRules {
  EntitlementRules entitlement = {};
  AccountRules account = {};
  Preemption preemption = Preemption::never;
  // A turn ends when its leader has had its due and an allowance, and its length is a step: see
  // scheduler/turn_end.h.
  bool lag_ends_turns = false;
};

class Policy {
 public:
  // `name`: lives as long as the program.
  explicit Policy(std::string_view name, const PolicyRules& rules = {}) : name_(name), rules_(rules) {}
  virtual ~Policy() = default;
  std::string_view name() const { return name_; }
  const PolicyRules& rules() const { return rules_; }

  // The order in which those that wait are served.
  virtual Rank rank(const TenantView& waiting, const TurnView& turn) const = 0;

  // True: `waiting` ends the turn of `running`, which nothing protects any more, before it is over; by
  // default nobody ever does. If one would end nobody's turn, none that ranks lower would.
  virtual bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const;

  // For how long time alone changes nothing about what preempts() says of `waiting`; max(), as by default,
  // for ever. After that the scheduler asks again.
  virtual Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const;

  // True: `running`, whose turn is over, has another before `waiting` is served. By default
  // a tenant that waits comes first.
  virtual bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const;

  // The order in which those that run keep their leases where not all can, since the running set has grown or
  // somebody needs a part of the room. By default, within a turn, the leader keeps it, and a tenant that
  // grows out of the running set loses it. When the turn is over, the one that came last has had least of it.
  virtual Rank retain(const TenantView& running, const TurnView& turn) const;

  // How long turns are, see turn_length.h for the arguments and for what it is by default.
  virtual TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const;

 private:
  std::string_view name_;
  PolicyRules rules_;
};

// True: `waiting` ends the turn of `running` now.
bool may_preempt(const Policy& policy, const TenantView& waiting, const TenantView& running,
                 const TurnView& turn);

}  // namespace sharedgpu
