// SPDX-License-Identifier: Apache-2.0
// The preemption of turns and its cost. No policy preempts a tenant before the tenant has had the GPU for
// the duration of a handoff. So preemptions cost at most half of the time, however many there are.
//
// Paid preemption is for tenants that leave the GPU to others for a long time, and then want the GPU for a
// short time. While a tenant neither has the GPU nor asks for it, it earns its fair share
// (AccountRules::Earns::pauses): if n running sets take turns, one second in n seconds. A tenant pays for the
// time in which it has the GPU and others wait. A preemption causes two handoffs, one to the preempting
// tenant and one back. A tenant that has earned the time of both handoffs may preempt tenants that have
// earned nothing, and pays for both handoffs. A tenant can earn or owe at most one turn.
//
// In any time T, a tenant spends at most T / (n + 1) plus two turns on preemptions, including the handoffs
// that the preemptions cause. In the long run, the time that a tenant uses for preemptions is less than its
// fair share. A tenant that always has work earns nothing, but gets the rest of a preempted turn later.
// Beside k tenants that preempt, a tenant that always works has at least 2 / (k + 2) of the time, which is
// more than its fair share. Pure.
#pragma once

#include <algorithm>

#include "arbiter/policy/views.h"

namespace sharedgpu {

enum class Preemption : std::uint8_t {
  never,
  free,
  paid,
};

constexpr Nanoseconds preemption_cost(Preemption preemption, Nanoseconds handoff) {
  return preemption == Preemption::paid ? 2 * handoff : Nanoseconds{};
}

constexpr bool can_pay(Nanoseconds lag, Nanoseconds handoff) {
  return lag > Nanoseconds{} && lag >= preemption_cost(Preemption::paid, handoff);
}

// Returns the time until a running tenant may be preempted; zero: now; max(): never.
constexpr Nanoseconds protected_for(Preemption preemption, const TenantView& running, Nanoseconds handoff) {
  if (preemption == Preemption::never) return Nanoseconds::max();
  const Nanoseconds earned = preemption == Preemption::paid ? running.lag : Nanoseconds{};
  return std::max({Nanoseconds{}, earned, handoff - running.elapsed});
}

}  // namespace sharedgpu
