// SPDX-License-Identifier: Apache-2.0
// A policy's view of the tenants and of their turn, and its ranks. Plain values.
#pragma once

#include <compare>

#include "arbiter/policy/turn_length.h"
#include "protocol/units.h"

namespace sharedgpu {

// The rights of a tenant's job.
struct Claims {
  std::uint32_t units = 1;
  std::int32_t priority = 0;  // of two the higher one goes first
  // Parts of the GPU's time, see entitlement.h.
  double request = 0;
  double limit = 1;
  bool timed = false;  // they count also while memory suffices for all
  Nanoseconds
      deadline{};  // of each piece of its work, of which it tells whether it was met; zero: it has none
  bool operator==(const Claims&) const = default;
};

// A tenant's report of its deadlines since the last report.
struct DeadlinesSeen {
  std::uint64_t met = 0;
  std::uint64_t missed = 0;
};

struct TenantView {
  TenantId tenant;
  Claims claims;
  Nanoseconds lag{};     // what is due to it and it has not had; negative: it has had more; see AccountRules
  Nanoseconds waited{};  // how long it waits; of one that runs, how long it had waited when it was served
  bool preempted = false;  // another's preemption ended its turn
  // The time for which it uses the GPU from its request until it has nothing to do there; no less than that
  // of the burst under way. Measured while others wait; zero: not yet.
  Nanoseconds burst{};
  Nanoseconds handoff{};  // what it takes to bring it in, as measured or guessed from its size
  double due = 0;         // its part of the time, see ActivityInterval

  // For a tenant that runs:
  Nanoseconds elapsed{};  // since its gates were opened
  // The time of the GPU for one of its submissions, if it yields its turn before one that would not end in
  // it; zero: it does not, or not known.
  Nanoseconds submission{};
  // The time that the end of its last turn took, if its processes waited for each other and so had to submit
  // more; zero: they did not, or not known.
  Nanoseconds last_drain{};
  bool leads = false;  // this turn was begun for it
  bool grows = false;  // it asks for memory that the running set has no room for
  bool idle = false;   // it has had nothing to do for longer than a handoff takes
};

struct TurnView {
  const TurnRules& rules;
  TurnLength turn;
  bool over = false;
};

// The higher one goes first; of two that are equal, the tenant with the lower number.
struct Rank {
  int level = 0;
  Nanoseconds weight{};
  auto operator<=>(const Rank&) const = default;
};

}  // namespace sharedgpu
