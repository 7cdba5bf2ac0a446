// SPDX-License-Identifier: Apache-2.0
// elastic: each tenant has a request and a limit, in parts of the GPU's time (Gemini, section 3.5). Of those
// that have work, requests are met first; where they are more than there is, each gets the same part of its
// own. The rest goes to all by their units, to none beyond its limit.
//
// What is due to a tenant is entered into its account as time passes, and what it has is paid from it: so who
// was given too much, since its kernels outlast its turns, has less afterwards. Those that have the GPU
// together pay for the time by what is due to each. The account reaches back for a window of 10 s, or a turn
// where that is longer: it holds no more than is due in one, and no more debt than one. In pauses debt is
// earned back as by waiting, and forgotten within about a window; that of a limit is not, since a limit is a
// part of pauses, too. Who has most is next; those whose accounts are full are equal, and go by how long they
// have waited.
//
// A turn lasts until its tenant is half a step behind, so that accounts stay within about a step of each
// other, and shares are exact over any time in which one is little. It has another if it is ahead of all that
// wait after a few steps, whatever those who run beside it do to the accounts of all. A step is as short as
// handoffs allow: 15 ms where no memory moves. A turn has room for whole submissions, as many as come next to
// that, since what has begun is waited for (kernel bursts, section 3.4): what that gives or takes stays in
// the accounts.
//
// Tenants that have stated shares have the GPU one at a time, also while memory suffices for all: their
// kernels would share it by rules of its own. The others run together.
//
// Nobody starves: a tenant waits at most for as long as the deepest debt takes to be earned back, so the
// window divided by what is due to it, and for a turn of each other. What the units of all of them leave to
// it is due to it at least, however small its request, and its limit at most.
#pragma once

#include "arbiter/policy/policy.h"

namespace sharedgpu {

class Elastic : public Policy {
 public:
  using Policy::Policy;
  Rank rank(const TenantView& waiting, const TurnView& turn) const override;
  bool goes_on(const TenantView& running, const TenantView& waiting, const TurnView& turn) const override;
  bool rules_time(const Claims& claims) const override;
  std::vector<double> shares(const std::vector<Claims>& competing) const override;
  TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const override;
  Nanoseconds turn_left(const TenantView& leader, Nanoseconds had, const TurnView& turn) const override;
  Nanoseconds barred_for(const TenantView& waiting, const TurnView& turn) const override;
  Nanoseconds allowed_for(const TenantView& running, const TurnView& turn) const override;
  Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const override;

 protected:
  // How far below nothing a tenant's account may be while it has the GPU and others wait.
  virtual Nanoseconds allowance(const TenantView& tenant, const TurnView& turn) const;
  // Its account, as it counts against those of others.
  static Nanoseconds standing_in_line(const TenantView& tenant);

 private:
  Nanoseconds until_behind(const TenantView& tenant, const TurnView& turn) const;
  // The longest turn that is left to its account alone.
  Nanoseconds at_once(const TenantView& tenant, Nanoseconds had, const TurnView& turn) const;
};

}  // namespace sharedgpu
