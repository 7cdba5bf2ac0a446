// SPDX-License-Identifier: Apache-2.0
// The limits that one tenant's deadlines set for other tenants. Under policies with
// EntitlementRules::deadlines, a tenant's reports of met and missed deadlines change the fraction of the time
// that lower-priority tenants of its domain may have. A missed deadline halves the fraction, and a met
// deadline raises it by 0.01, like the congestion window of TCP (paper on CudaMon, section 3.4). So
// the fraction oscillates around the largest value at which the deadlines are met.
//
// The values that a job has stated (Claims: priority, share, limit, deadline) are kept unchanged in
// Tenant::stated. claims() returns these values as reduced by the deadlines of other tenants. A tenant that
// reports nothing for a while limits no other tenant until it reports again. If a tenant has not had the GPU
// since its last report that was not ignored, its new report is ignored: it changes no limit.
//
// With Rules::by_threads, reports change the fraction of the GPU's threads that processes with a lower
// priority get when they start. MPS sets this fraction once, at the start of a process, so the fraction is
// kept for each GPU and not for each tenant. Not thread-safe.
#pragma once

#include <limits>

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/turns/turn_machine.h"
#include "arbiter/policy/policy.h"

namespace sharedgpu {

// Returns the new limit on a tenant's fraction of the time, after a higher-priority tenant of its domain has
// reported `seen`. `part` is the limit before the report; `stated`: the Claims that the tenant's job has
// stated. The new limit is at most the stated limit. The new limit is at least the tenant's own request and
// at least 1/20, but never above the stated limit. If the policy has no deadlines, the new limit is the
// stated limit. If `seen` is empty, `part` is only clamped to these bounds.
double part_after(const EntitlementRules& rules, double part, const Claims& stated,
                  const DeadlinesSeen& seen);

class DeadlineLimits {
 public:
  struct Threads {
    double part = 1;
    std::int32_t below = std::numeric_limits<std::int32_t>::min();  // the limit applies to priorities below
                                                                    // this value
  };

  DeadlineLimits(const TurnMachine& turns, Effects& effects) : turns_(turns), effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  void add(const Gpu& gpu) { threads_.begin(gpu); }
  void begin(const Domain& domain) { hold_until_.begin(domain); }

  // Call when the tenant's job states new Claims, before `tenant.stated` is changed.
  void restate(const Tenant& tenant, const Claims& stated, const Policy& policy);
  // Call when another policy applies to the tenant: ends the limits of the previous policy.
  void reset(const Tenant& tenant) { tenants_[tenant].claims = tenant.stated; }
  // Receives a tenant's report on its deadlines. Returns false if the report must not limit other tenants.
  bool report(const Tenant& tenant, const DeadlinesSeen& seen);
  // Changes the limits of other tenants according to the report of `reporter`. Returns true if a limit on the
  // time of a tenant has changed.
  bool apply(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  // Restores the stated Claims of each tenant for which no tenant of a higher priority has reported deadlines
  // recently. With Rules::by_threads, restores the stated Claims of all tenants. Also ends limits on threads
  // for which no reports come any more. Returns true if a limit on the time of a tenant has changed.
  bool lift(const Domain& domain);

  // Returns the tenant's stated Claims, reduced by the limits that deadlines of others set.
  const Claims& claims(const Tenant& tenant) const { return tenants_[tenant].claims; }
  const Threads& threads(const Gpu& gpu) const { return threads_[gpu]; }
  std::uint64_t met(const Tenant& tenant) const { return tenants_[tenant].met; }
  std::uint64_t missed(const Tenant& tenant) const { return tenants_[tenant].missed; }

 private:
  struct Row {
    Claims claims;
    std::uint64_t met = 0;
    std::uint64_t missed = 0;
    std::optional<Nanoseconds> reported;  // time of the last report that was not ignored, see report()
  };

  void bound_threads(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  bool bound(const Tenant& tenant, double part);
  bool bounds_others(const Tenant& tenant) const;

  const TurnMachine& turns_;
  Effects& effects_;
  Table<Tenant, Row> tenants_;
  Table<Gpu, Threads> threads_;
  // The earliest time at which a limit may end because no reports come; max(): there is no limit; zero:
  // unknown.
  Table<Domain, Nanoseconds> hold_until_;
};

}  // namespace sharedgpu
