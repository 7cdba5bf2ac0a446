// SPDX-License-Identifier: Apache-2.0
// Who may interrupt a turn: tenants that leave the GPU to others for long and want it for short.
//
// A tenant earns its fair share of the time in which it neither has the GPU nor asks for it: a second of
// every n, where n running sets take turns. It pays for the time in which it has the GPU and others wait. Who
// has credit for two handoffs, there and back, may interrupt those who have none, and pays for them. Credit
// and debt are at most a turn. Nobody is interrupted before he has had the GPU for as long as a handoff
// takes: so interruptions cost at most half of the time, however many there are.
//
// Of any time T, what a tenant uses in interruptions, with the handoffs that they cause, is at most T / (n +
// 1) and two turns, so less than its fair share. Who always has work earns nothing, but what is interrupted
// of its turns goes on afterwards: of k tenants that interrupt and one that always works, that one has at
// least 2 / (k + 2) of the time, which is more than its fair share. Pure.
#pragma once

#include <algorithm>

#include "arbiter/policy/policy.h"

namespace sharedgpu {

inline Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) {
  if (standing.pauses) credit += time / std::max(standing.sets, 1u);
  if (standing.pays) credit -= time;
  return std::clamp(credit, -standing.turn, standing.turn);
}

constexpr Nanoseconds price_of_interruption(Nanoseconds handoff) { return 2 * handoff; }

constexpr bool may_interrupt(Nanoseconds credit, Nanoseconds handoff) {
  return credit > Nanoseconds{} && credit >= price_of_interruption(handoff);
}

// How long it is yet until a tenant that has had the GPU for `had` may be interrupted; zero: it may be now.
constexpr Nanoseconds peace_left(Nanoseconds credit, Nanoseconds had, Nanoseconds handoff) {
  return std::max({Nanoseconds{}, credit, handoff - had});
}

}  // namespace sharedgpu
