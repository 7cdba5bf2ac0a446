// SPDX-License-Identifier: Apache-2.0
// Whose deadlines bound whom: what a tenant tells of its deadlines moves the part of the time that those of a
// lower priority in its domain may have, as the policy says.
//
// What a job has stated stays apart from what it may claim now. A tenant that tells nothing for a while has
// ended, or waits for work: it bounds nobody until it tells again. Nor does one that only tells, and has not
// had the GPU since it did so last.
//
// Or it moves the part of the GPU's threads that such tenants get where they start: what MPS can bound is set
// for good then. So it is kept with the GPU, whichever tenants there are.
#include <algorithm>

#include "arbiter/core/actions.h"

namespace sharedgpu {
namespace {

constexpr std::chrono::seconds kLeastPatience{10};
constexpr std::chrono::seconds kMostPatience{60};
constexpr int kMostSilent = 3;  // deadlines in a row

Nanoseconds patience_with(const Tenant& tenant) {
  return std::clamp<Nanoseconds>(kMostSilent * tenant.stated.deadline, kLeastPatience, kMostPatience);
}

}  // namespace

void Core::on(const From<Deadlines>& event) {
  Session* session = hear(event.session);
  if (session == nullptr || session->gpu == nullptr) return;
  Tenant& tenant = *session->tenant;
  const DeadlinesSeen seen{.met = event.body.met, .missed = event.body.missed};
  if (tenant.stated.deadline == Nanoseconds{} || seen.met + seen.missed == 0) return;
  tenant.deadlines.met += seen.met;
  tenant.deadlines.missed += seen.missed;
  if (!leases_.holds(tenant.id) && tenant.last_ran <= tenant.deadlines.told) return;
  tenant.deadlines.told = now_;
  if (domains_changed_) find_domains();
  Domain& domain = domains_[tenant.domain];
  if (domain.rules.by_threads) bound_threads(domain, tenant, seen);
  for (Tenant* other : domain.tenants)
    if (!domain.rules.by_threads && other->stated.priority < tenant.stated.priority)
      bound(*other, domain.rules.policy->part_after(other->claims.limit, other->stated, seen), domain);
  domain.bounds_hold_until = {};
}

// Of two with deadlines the one with the higher priority bounds.
void Core::bound_threads(const Domain& domain, const Tenant& teller, const DeadlinesSeen& seen) {
  for (Gpu* gpu : domain.gpus) {
    if (teller.stated.priority < gpu->threads.below) continue;
    gpu->threads.below = teller.stated.priority;
    gpu->threads.part = domain.rules.policy->part_after(gpu->threads.part, {}, seen);
  }
}

double Core::threads_on(const Snapshot::Gpu& gpu, const Claims& claims) {
  const double part = claims.priority < gpu.threads_left_below ? gpu.threads_left : 1;
  return std::min(claims.limit, std::max(part, claims.request));
}

bool Core::bounds_others(const Tenant& tenant) const {
  const Nanoseconds told = tenant.deadlines.told;
  return told != Nanoseconds{} && now_ < told + patience_with(tenant);
}

Claims Core::bounded(const Claims& stated, double part) {
  Claims claims = stated;
  claims.limit = std::min(stated.limit, part);
  claims.request = std::min(stated.request, claims.limit);
  return claims;
}

void Core::bound(Tenant& tenant, double part, Domain& domain) {
  const Claims claims = bounded(tenant.stated, part);
  if (claims == tenant.claims) return;
  tenant.claims = claims;
  domain.shared = false;
}

// Those that nobody with deadlines is above any more have all of what they stated.
void Core::lift_bounds(Domain& domain) {
  if (now_ >= domain.bounds_hold_until) {
    domain.bounds_hold_until = Nanoseconds::max();
    std::optional<std::int32_t> highest;
    for (const Tenant* tenant : domain.tenants) {
      if (!bounds_others(*tenant)) continue;
      highest = std::max(highest.value_or(tenant->stated.priority), tenant->stated.priority);
      domain.bounds_hold_until =
          std::min(domain.bounds_hold_until, tenant->deadlines.told + patience_with(*tenant));
    }
    for (Gpu* gpu : domain.gpus)
      if (!domain.rules.by_threads || !(highest >= gpu->threads.below)) gpu->threads = {};
    for (Tenant* tenant : domain.tenants)
      if (tenant->claims.limit < tenant->stated.limit && !(highest > tenant->stated.priority))
        bound(*tenant, tenant->stated.limit, domain);
  }
  if (domain.bounds_hold_until != Nanoseconds::max()) wake_at(domain.bounds_hold_until);
}

}  // namespace sharedgpu
