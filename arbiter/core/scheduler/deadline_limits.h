// SPDX-License-Identifier: Apache-2.0
// The limits that deadlines set to other tenants: reports of deadlines met and missed move the part of the
// time that tenants of a lower priority in the domain may have, under policies whose EntitlementRules say so.
// Misses halve it, deadlines that are met raise it by a hundredth, as the congestion window of TCP (CudaMon,
// section 3.4): so it goes up and down about what leaves the deadlines met.
//
// What a job states stays apart from what it may claim (claims()). A tenant that reports nothing for a while
// has ended, or waits for work: it bounds nobody until it reports again. Nor does one that only reports, and
// has not had the GPU since its last report.
//
// With Rules::by_threads reports move the part of the GPU's threads for processes that start with a low
// priority instead: what MPS can bound is set for good then. So that part is kept with the GPU, whichever
// tenants there are. One thread at a time.
#pragma once

#include <limits>

#include "arbiter/core/model/effects.h"
#include "arbiter/core/model/model.h"
#include "arbiter/core/model/table.h"
#include "arbiter/core/turns/turn_machine.h"
#include "arbiter/policy/policy.h"

namespace sharedgpu {

// The part of the time that a tenant may have at most, which had `part`, after one of a higher priority in
// its domain has told of its deadlines; `stated`: by the tenant's job. A tenant keeps its own request, or a
// twentieth where that is more. Where deadlines bound nobody, what is stated. Nothing seen: `part` as it may
// be.
double part_after(const EntitlementRules& rules, double part, const Claims& stated,
                  const DeadlinesSeen& seen);

class DeadlineLimits {
 public:
  struct Threads {
    double part = 1;
    std::int32_t below = std::numeric_limits<std::int32_t>::min();  // that priority
  };

  DeadlineLimits(const TurnMachine& turns, Effects& effects) : turns_(turns), effects_(effects) {}

  void add(const Tenant& tenant) { tenants_.begin(tenant); }
  void add(const Gpu& gpu) { threads_.begin(gpu); }
  void begin(const Domain& domain) { hold_until_.begin(domain); }

  // The tenant's job states other claims; tenant.stated has the old ones.
  void restate(const Tenant& tenant, const Claims& stated, const Policy& policy);
  // Another policy rules: it knows nothing of the limits of the one before.
  void reset(const Tenant& tenant) { tenants_[tenant].claims = tenant.stated; }
  // A report. False: it bounds nobody.
  bool report(const Tenant& tenant, const DeadlinesSeen& seen);
  // Returns true if a limit has changed.
  bool apply(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  // Tenants that nobody with deadlines is above any more have all that they state; with Rules::by_threads all
  // have. The same.
  bool lift(const Domain& domain);

  // The claims that remain of the stated ones after the deadlines of others.
  const Claims& claims(const Tenant& tenant) const { return tenants_[tenant].claims; }
  const Threads& threads(const Gpu& gpu) const { return threads_[gpu]; }
  std::uint64_t met(const Tenant& tenant) const { return tenants_[tenant].met; }
  std::uint64_t missed(const Tenant& tenant) const { return tenants_[tenant].missed; }

 private:
  struct Row {
    Claims claims;
    std::uint64_t met = 0;
    std::uint64_t missed = 0;
    std::optional<Nanoseconds> reported;  // the last report that counted
  };

  void bound_threads(const Domain& domain, const Tenant& reporter, const DeadlinesSeen& seen);
  bool bound(const Tenant& tenant, double part);
  bool bounds_others(const Tenant& tenant) const;

  const TurnMachine& turns_;
  Effects& effects_;
  Table<Tenant, Row> tenants_;
  Table<Gpu, Threads> threads_;
  // The earliest that a limit may end by silence; max(): there is none. Zero: not known.
  Table<Domain, Nanoseconds> hold_until_;
};

}  // namespace sharedgpu
