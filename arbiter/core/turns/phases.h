// SPDX-License-Identifier: Apache-2.0
// The phases of a tenant: without leases, with leases, and the transitions between these. Each phase has a
// struct with the values that are needed in this phase only.
//
// Out: gates are closed and all sessions have drained; the tenant's memory may be evicted. Entering: the
// tenant is chosen for the running set, and its memory is being restored. Running: gates are open. Leaving:
// gates are closed, Revoke was sent, and sessions of the tenant, or of its gang on other nodes, have not
// drained. TurnMachine changes phases in enter(), open(), leave() and finish_leaving(), after a restart of
// the arbiter in recover(), and for a session that has reconnected in revoke_returned().
#pragma once

#include <variant>

#include "arbiter/core/model/phase.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct Out {};

struct Entering {
  Nanoseconds since{};
  Nanoseconds turn_began{};  // start of the turn that the tenant joins
  Nanoseconds elapsed{};     // the part of its own turn that the tenant used before it was preempted, else 0
  bool leads = false;        // the turn begins for this tenant; other members join it
  bool preempts = false;     // the tenant preempts others; members that stay continue their turn
  // The arbiter awaits a tenant while a session may restore all of its memory and is not ready. `awaited`:
  // the time for which the arbiter had awaited the tenant at the last call of await_ready(). `awaited_since`:
  // the time of this call; empty if the arbiter did not await the tenant then.
  std::optional<Nanoseconds> awaited_since = {};
  Nanoseconds awaited{};
};

struct Running {
  Nanoseconds opened{};
  Nanoseconds turn_began{};  // the same for all members of a running set, except for members that stayed when
                             // another member preempted others
  bool leads = false;
};

struct Leaving {
  // The time from which drained sessions may submit once more; see stepping.cpp.
  Nanoseconds step_at{};
  Nanoseconds step_pause{};  // the minimum time from a Released or a single submission to the next submission
  Nanoseconds step_took{};   // the longest time from `stepped_at` to the next Released, while a session was
                             // allowed a single submission
  Nanoseconds stepped_at{};  // the last time at which a session was allowed a single submission, or drained
  // the last time at which a session was allowed to submit, or resumed from a stop
  Nanoseconds could_submit_at{};
  bool revoked = false;        // the lease was revoked without an answer from the tenant's processes
  bool but_newcomers = false;  // a drained session may submit only if it has run before (has_run)
};

using TenantPhase = std::variant<Out, Entering, Running, Leaving>;

constexpr Phase phase_of(const TenantPhase& phase) { return static_cast<Phase>(phase.index()); }

// The progress of a session in its tenant's drain.
enum class Drain : std::uint8_t {
  draining,
  // the session has drained, and was then allowed to submit once, since other processes may wait for its work
  submits_once,
  drained,
  drained_again,  // the session has drained again after the single submission
  // the session does not answer, and has nothing on the GPU for which other tenants would have to wait
  given_up,
};

// Returns true if the session has reported that it has drained.
constexpr bool said_drained(Drain drain) { return drain == Drain::drained || drain == Drain::drained_again; }
constexpr bool is_drained(Drain drain) { return said_drained(drain) || drain == Drain::given_up; }

}  // namespace sharedgpu
