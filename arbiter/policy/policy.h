// SPDX-License-Identifier: Apache-2.0
// A scheduling policy is an order and parameters: it ranks who waits, says who makes room for whom, and sets
// the mechanisms of the scheduler. It never touches memory.
//
// The core knows what is possible: what fits together, who is stuck, who has let go, who is idle. It asks a
// policy who is next of those that wait, and takes along who fits beside; whether those that run make room
// for them; and how long turns are. A policy is pure, it has no state and no clock: what it knows of a
// tenant's past is the tenant's lag, which the core keeps as AccountRules say, and what the core measures for
// all. So it can be exchanged at any moment.
//
// To add a policy:
//   1. Add its name to protocol/policy_names.h, and name and class to registry.cpp: it compiles only if the
//      two lists agree.
//   2. Write arbiter/policy/NAME.h, a class that derives from Policy. Its top comment says how long a tenant
//      may wait at most.
//   3. Document it in etc/sharedgpu.conf, docs/man/sharedgpu.conf.5 and the table of
//   docs/design/scheduling.md.
//   4. Test it in tests/unit/arbiter/policy.cpp, and its bound in tests/property/arbiter/policies.cpp, which
//      runs every policy of the list; add it to tests/unit/config/settings.cpp and keys_golden.cpp, and to
//      bench/decision.cpp.
//   5. Write tests/unit/config/keys.golden (see tests/golden) and tests/property/arbiter/decisions.golden
//      (`decisions --record`) anew: its scenarios take the policies in turn, so most of them get another one.
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
  // A turn ends when its leader has had its due and an allowance, and its length is a step: see
  // scheduler/turn_end.h.
  bool lag_ends_turns = false;
  // If a tenant that waits would end nobody's turn, none that ranks lower would.
  bool preempts_by_rank = true;
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
  // default nobody ever does. See PolicyRules::preempts_by_rank.
  virtual bool preempts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const;

  // For how long time alone changes nothing about what preempts() says of `waiting`; then the scheduler asks
  // again. By default time never does: max().
  virtual Nanoseconds unchanged_for(const TenantView& waiting, const TurnView& turn) const;

  // True: `running`, whose turn is over, has another before `waiting` is served. By default
  // a tenant that waits comes first.
  virtual bool extends(const TenantView& running, const TenantView& waiting, const TurnView& turn) const;

  // The order in which those that run keep their leases where not all can, since the running set has grown or
  // somebody needs a part of the room. By default, within a turn, the leader keeps it, and a tenant that
  // grows out of the running set loses it. When the turn is over, the one that came last has had least of it.
  virtual Rank retain(const TenantView& running, const TurnView& turn) const;

  // The length of turns; turn_length.h describes the arguments and the default.
  virtual TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const;

 private:
  std::string_view name_;
  PolicyRules rules_;
};

// True: `waiting` ends the turn of `running` now.
bool may_preempt(const Policy& policy, const TenantView& waiting, const TenantView& running,
                 const TurnView& turn);

}  // namespace sharedgpu
