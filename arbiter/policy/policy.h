// SPDX-License-Identifier: Apache-2.0
// A scheduling policy ranks the waiting tenants, decides which running tenants make room for a waiting
// tenant, and sets the parameters of the scheduler's mechanisms. It does not handle memory.
//
// The core knows what is possible: which tenants fit together, cannot evict, have drained or are idle. The
// core asks a policy which waiting tenant is next, whether running tenants make room for that tenant, and how
// long turns are. Other tenants enter together with the next tenant if they fit on the GPU beside it. A
// policy is pure: it has no state and no clock. A policy sees a tenant's past only in the tenant's lag, which
// the core computes by AccountRules, and in the core's measurements. So the policy can be changed at any
// moment.
//
// To add a policy:
//   1. Add its name to protocol/policy_names.h. If the policy uses shares, priorities or deadlines, also add
//      the name to the lists of such policies there. Add name and class to registry.cpp, which compiles only
//      if it lists the same names.
//   2. Write arbiter/policy/NAME.h, a class that derives from Policy. State the longest wait of a tenant in
//      the comment at the top of the file. If the policy needs a value that views.h lacks, add a field to
//      TenantView or TurnView, and fill it in Scheduler::view() (arbiter/core/scheduler/scheduler.cpp).
//   3. Document the policy in etc/sharedgpu.conf, docs/man/sharedgpu.conf.5 and the table of
//      docs/design/scheduling.md.
//   4. Test the policy in tests/unit/arbiter/policy/policy.cpp, and test the longest wait in
//      tests/property/arbiter/policies.cpp, which runs every policy; add the policy to
//      tests/unit/config/settings.cpp and keys_golden.cpp, and to bench/decision.cpp.
//   5. Regenerate tests/unit/config/keys.golden (see tests/golden).
//   6. Regenerate tests/property/arbiter/decisions.golden (`decisions --record`): successive scenarios use
//      successive policies of the list, so a new policy changes the policy of most scenarios.
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
  // If true, a turn ends when the tenant for which it began has a debt of allowance() (entitlement.h), see
  // scheduler/turn_end.h. If false, a turn ends after TurnLength.
  bool lag_ends_turns = false;
  // If true, and a waiting tenant preempts nobody, then waiting tenants of lower rank preempt nobody either.
  bool preempts_by_rank = true;
};

class Policy {
 public:
  // `name` must have static lifetime.
  explicit Policy(std::string_view name, const PolicyRules& rules = {}) : name_(name), rules_(rules) {}
  virtual ~Policy() = default;
  std::string_view name() const { return name_; }
  const PolicyRules& rules() const { return rules_; }

  // The rank of a waiting tenant: the tenant with the highest rank is next.
  virtual Rank rank(const TenantView& waiting, const TurnView& turn) const = 0;

  // Returns true if `waiting` preempts `running`, whose protection (preemption.h) has ended. By default
  // nobody is preempted. See PolicyRules::preempts_by_rank.
  virtual bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const;

  // Returns how long the answer of preempts() for `waiting` stays valid if nothing happens. After that time
  // the scheduler asks again. Returns max() by default: the answer does not depend on the time.
  virtual Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const;

  // Returns true if `running`, whose turn is over, gets another turn before `waiting` gets one. By default,
  // `waiting` goes first.
  virtual bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const;

  // The order in which running tenants keep their leases if some have to leave, because the running set has
  // outgrown the GPU or because another tenant enters. By default, an idle tenant leaves first. During a
  // turn, the tenant for which the turn began leaves last, and among the others a tenant that requests too
  // much memory leaves first. After the turn, the tenant that entered last leaves last, since it has had the
  // least time.
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
