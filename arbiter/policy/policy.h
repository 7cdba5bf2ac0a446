// SPDX-License-Identifier: Apache-2.0
// What a scheduling policy decides, and all that it sees for it: who runs next, with whom, and for how long.
// It never touches memory.
//
// The core knows what is possible: what fits together, who is stuck, who has let go, who is idle. It asks a
// policy who is next of those that wait, and takes along who fits beside; whether those that run make room
// for them; and how long turns are. A policy is pure, it has no state and no clock: what it wants to know of
// a tenant's past is the tenant's credit, which it keeps itself, and what the core measures for all. So it
// can be exchanged at any moment. One file each; each says how long a tenant may wait at most.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "arbiter/policy/turn_length.h"
#include "protocol/units.h"

namespace sharedgpu {

// What a tenant's job has a right to.
struct Claims {
  std::uint32_t units = 1;
  std::int32_t priority = 0;  // of two the higher one goes first
  // Parts of the GPU's time, see elastic.cpp.
  double request = 0;
  double limit = 1;
  bool timed = false;  // they count also while memory suffices for all
  Nanoseconds
      deadline{};  // of each piece of its work, of which it tells whether it was met; zero: it has none
  bool operator==(const Claims&) const = default;
};

// What a tenant has told of its deadlines since it told last.
struct DeadlinesSeen {
  std::uint64_t met = 0;
  std::uint64_t missed = 0;
};

struct TenantView {
  TenantId tenant;
  Claims claims;
  Nanoseconds credit{};      // see credit_after
  Nanoseconds waited{};      // how long it waits; of one that runs, how long it had waited when it was served
  bool interrupted = false;  // another's interruption ended its turn
  // How long it uses the GPU from when it asks for it until it has nothing to do there; no less than it has
  // used it now without a pause. Measured where others wait; zero: not yet.
  Nanoseconds burst{};
  Nanoseconds handoff{};  // what it takes to bring it in, as measured or guessed from its size
  double due = 0;         // see Standing

  // Of one that runs:
  Nanoseconds had{};  // since its gates were opened
  // How long the GPU is at one of its submissions, where it gives its turn back before one that would not end
  // in it; zero: it does not, or not known.
  Nanoseconds submission{};
  // How long the end of its last turn took, where its processes waited for each other and had to be let on
  // for that; zero: they did not, or not known.
  Nanoseconds drain{};
  bool leads = false;  // this turn was begun for it
  bool grows = false;  // it asks for memory that the running set has no room for
  bool idle = false;   // it has had nothing to do for longer than a handoff takes
};

struct TurnView {
  const TurnRules& rules;
  TurnLength turn;
  bool over = false;
};

// What a tenant did in the time for which its credit is brought up to date.
struct Standing {
  bool pauses = false;    // has no lease and asks for none
  bool pays = false;      // has a lease, and others wait
  unsigned sets = 1;      // running sets that take turns where all of the tenants want one
  Nanoseconds turn{};     // how long one is
  bool comes_in = false;  // is being brought in, and others wait
  bool overuses = false;  // has a lease though its turn is over
  unsigned holders = 1;   // tenants that have a lease or are being brought in, on its GPUs
  double share = 1;       // what is due to it, where others wait
  // Where some have to take turns, for want of memory or since their time is ruled:
  bool counted = false;  // they do
  bool holds = false;    // has a lease
  unsigned leases = 0;   // tenants that have one, on any GPU of its domain
  double due = 0;  // its part of the time, by shares(), of those that have a lease or ask for one on the
                   // GPU where that is least; in a pause, what it was last
  double due_to_holders =
      0;             // where it has a lease: the sum for all that have one there; where that is least
  double limit = 1;  // of its Claims
  bool operator==(const Standing&) const = default;
};

// The higher one goes first; of two that are equal, the tenant with the lower number.
struct Rank {
  int level = 0;
  Nanoseconds weight{};
  auto operator<=>(const Rank&) const = default;
};

class Policy {
 public:
  // `name`: lives as long as the program.
  explicit Policy(std::string_view name) : name_(name) {}
  virtual ~Policy() = default;
  std::string_view name() const { return name_; }

  // Who of those that wait is served first.
  virtual Rank rank(const TenantView& waiting, const TurnView& turn) const = 0;

  // Who of those that run keeps its lease where not all can, since the running set has grown or somebody
  // needs a part of the room. By default, within a turn, whom the turn was begun for keeps it, and who grows
  // out of the running set leaves it. When the turn is over, who came last has had least of it.
  virtual Rank keeps(const TenantView& running, const TurnView& turn) const;

  // Whether `running`, whose turn is over, has another before `waiting` is served. By default whoever waits
  // comes first.
  virtual bool goes_on(const TenantView& running, const TenantView& waiting, const TurnView& turn) const;

  // Whether `waiting` ends the turn of `running` before it is over; by default nobody ever does. Where one
  // would end nobody's turn, none that ranks lower would. And what it pays for that, and for how long from
  // now on nobody may at all: zero, it may be asked at any time.
  virtual bool interrupts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const;
  virtual Nanoseconds price_of_interruption(const TurnView& turn) const;
  virtual Nanoseconds peace_left(const TenantView& running, const TurnView& turn) const;

  // Whether a tenant has the GPU for itself while it runs, also where memory suffices for more; by default it
  // shares it with all that fit.
  virtual bool rules_time(const Claims& claims) const;
  // Whether that holds for all in the domain of such a tenant.
  virtual bool rules_time_of_all(const Claims& claims) const;
  // How much work anybody may have queued ahead of the GPU beside such a tenant, where some have to take
  // turns; zero, by default: as much as usual, see interposer/gate/ahead.h.
  virtual Nanoseconds queue_beside(const Claims& claims) const;

  // What part of the time is due to each of those that want to run; by default that of its units.
  virtual std::vector<double> shares(const std::vector<Claims>& competing) const;

  // The part of the time that a tenant may have at most, which had `part`, after one of a higher priority in
  // its domain has told of its deadlines; that of `stated`, which the tenant's job said, where nobody has. By
  // default deadlines bound nobody. Nothing seen: `part` as it may be.
  virtual double part_after(double part, const Claims& stated, const DeadlinesSeen& seen) const;

  // How much is left of a turn that was begun for `leader`, and of which it has had `had`; by default what is
  // left of its length.
  virtual Nanoseconds turn_left(const TenantView& leader, Nanoseconds had, const TurnView& turn) const;

  // For how long `waiting` may not run yet, and `running` may go on, whether or not others wait; by default
  // nobody is kept from what nobody else wants.
  virtual Nanoseconds barred_for(const TenantView& waiting, const TurnView& turn) const;
  virtual Nanoseconds allowed_for(const TenantView& running, const TurnView& turn) const;

  // How long turns are, see turn_length.h for the arguments and for what it is by default.
  virtual TurnLength length(const TurnRules& rules, Nanoseconds handoff, unsigned waiting_sets) const;

  // A tenant's credit after `time` more, in which it did as `standing` says; by default there is none.
  virtual Nanoseconds credit_after(Nanoseconds credit, const Standing& standing, Nanoseconds time) const;

 private:
  std::string_view name_;
};

}  // namespace sharedgpu
