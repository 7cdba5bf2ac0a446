// SPDX-License-Identifier: Apache-2.0
// A scheduling policy is an order and parameters: it ranks the waiting tenants, decides which tenants make
// room for which, and sets the mechanisms of the scheduler. It never touches memory.
//
// The core knows what is possible: which tenants fit together, cannot evict, have drained or are idle. It
// asks a policy which waiting tenant is next, whether running tenants make room for it, and how long turns
// are. Tenants that fit beside the next one enter with it. A policy is pure: it has no state and no clock. A
// policy knows a tenant's past only by the tenant's lag, which the core computes by AccountRules, and by the
// core's measurements. So it can be exchanged at any moment.
//
// To add a policy:
//   1. Add its name to protocol/policy_names.h, there also to the lists of the policies that use shares,
//      priorities or deadlines, and name and class to registry.cpp: it compiles only if the names agree.
//   2. Write arbiter/policy/NAME.h, a class that derives from Policy. The comment at its top gives the
//      longest wait of a tenant. A value that it needs and views.h lacks becomes a field of TenantView or
//      TurnView there, filled in by Scheduler::view() (arbiter/core/scheduler/scheduler.cpp).
//   3. Document it in etc/sharedgpu.conf, docs/man/sharedgpu.conf.5 and the table of
//      docs/design/scheduling.md.
//   4. Test it in tests/unit/arbiter/policy.cpp, and its bound in tests/property/arbiter/policies.cpp, which
//      runs every policy of the list; add it to tests/unit/config/settings.cpp and keys_golden.cpp, and to
//      bench/decision.cpp.
//   5. Regenerate tests/unit/config/keys.golden (see tests/golden).
//   6. Regenerate tests/property/arbiter/decisions.golden (`decisions --record`): its scenarios take the
//      policies in turn, so most of them get another policy.
#pragma once

#include <string_view>

#include "arbiter/policy/account_rules.h"
#include "arbiter/policy/entitlement.h"
#include "arbiter/policy/preemption.h"
#include "arbiter/policy/views.h"

namespace sharedgpu {

// The parameters of the scheduler's mechanisms that a policy sets.
struct PolicyRules {
  EntitlementRules entitlement = {};
  AccountRules account = {};
  Preemption preemption = Preemption::never;
  // true: a turn ends when its leader has had its share and an allowance, and its length is a slice; see
  // scheduler/turn_end.h.
  bool lag_ends_turns = false;
  // If a waiting tenant preempts nobody, no waiting tenant of lower rank does.
  bool preempts_by_rank = true;
};

class Policy {
 public:
  // `name` must have static lifetime.
  explicit Policy(std::string_view name, const PolicyRules& rules = {}) : name_(name), rules_(rules) {}
  virtual ~Policy() = default;
  std::string_view name() const { return name_; }
  const PolicyRules& rules() const { return rules_; }

  // The order in which waiting tenants are served.
  virtual Rank rank(const TenantView& waiting, const TurnView& turn) const = 0;

  // Returns true if `waiting` preempts `running`, whose protection (preemption.h) has ended. By default
  // nobody is preempted. See PolicyRules::preempts_by_rank.
  virtual bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const;

  // The time for which the answer of preempts() for `waiting` cannot change by the passage of time alone;
  // then the scheduler asks again. By default max(): time alone never changes the answer.
  virtual Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const;

  // Returns true if `running`, whose turn is over, has another before `waiting` is served. By default a
  // waiting tenant comes first.
  virtual bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const;

  // The order in which running tenants keep their leases if not all can, since the running set has grown or
  // another tenant needs room. By default, within a turn the leader keeps its lease, and a tenant that grows
  // out of the running set loses it. After the turn, the tenant that came last keeps its lease longest, since
  // it has had the least of the turn.
  virtual Rank retain(const TenantView& running, const TurnView& turn) const;

  // The length of turns; turn_length.h describes the arguments and the default.
  virtual TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const;

 private:
  std::string_view name_;
  PolicyRules rules_;
};

// Returns true if `waiting` preempts `running` now.
bool may_preempt(const Policy& policy, const TenantView& waiting, const TenantView& running,
                 const TurnView& turn);

}  // namespace sharedgpu
