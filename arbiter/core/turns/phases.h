// SPDX-License-Identifier: Apache-2.0
// The phases of a tenant: without leases, with leases, and the transitions between these. Each phase has the
// fields that only this phase needs.
//
// Out: gates closed and everything drained; its memory may be evicted. Entering: chosen for the running set;
// its memory is being restored. Running: gates open. Leaving: gates closed, Revoke sent, and some of its
// sessions have not drained. TurnMachine changes phases in enter(), open(), leave() and finish_leaving().
#pragma once

#include <variant>

#include "arbiter/core/model/phase.h"
#include "protocol/messages.h"

namespace sharedgpu {

struct Out {};

struct Entering {
  Nanoseconds since{};
  Nanoseconds turn_began{};  // start of the turn that the tenant joins
  Nanoseconds elapsed{};     // the used part of its own turn, if that was preempted; it now gets the rest
  bool leads = false;        // the turn begins for this tenant; other members join it
  bool preempts = false;     // the tenant preempts: the other members continue in the earlier turn
  // Set while a session has room for all of its memory and is not ready: the start of this period. `awaited`
  // is the sum of earlier such periods.
  std::optional<Nanoseconds> awaited_since = {};
  Nanoseconds awaited{};
};

struct Running {
  Nanoseconds opened{};
  Nanoseconds turn_began{};  // equal for all members of a running set, except members that continue when a
                             // tenant preempts others
  bool leads = false;
};

struct Leaving {
  // Decides when drained sessions may submit once; see stepping.cpp.
  Nanoseconds step_at{};
  Nanoseconds step_pause{};       // the least time between a Released and the next submission
  Nanoseconds step_took{};        // the longest wait for a Released after a submission
  Nanoseconds stepped_at{};       // when a session was last allowed to submit, or drained
  Nanoseconds could_submit_at{};  // when a session could last submit, because it was allowed to or had
                                  // resumed after a stop
  bool revoked = false;           // the lease was revoked without an answer of the tenant's processes
  bool but_newcomers = false;     // only sessions that have run before may submit
};

using TenantPhase = std::variant<Out, Entering, Running, Leaving>;

constexpr Phase phase_of(const TenantPhase& phase) { return static_cast<Phase>(phase.index()); }

// The progress of a session in its tenant's drain.
enum class Drain : std::uint8_t {
  draining,
  submits_once,  // it had drained, and may submit once, since other processes may wait for its submission
  drained,
  drained_again,  // it has drained again after such a submission
  given_up,       // it does not answer, and has nothing on the GPU for which others would have to wait
};

// Returns true if the session has reported that it has drained.
constexpr bool said_drained(Drain drain) { return drain == Drain::drained || drain == Drain::drained_again; }
constexpr bool is_drained(Drain drain) { return said_drained(drain) || drain == Drain::given_up; }

}  // namespace sharedgpu
