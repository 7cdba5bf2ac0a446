// SPDX-License-Identifier: Apache-2.0
// The coordinator of a gang: gives the members of a job that spans nodes their turns at the same time.
//
// A turn begins when all members have offered it, and gates open when the memory of all is resident; so
// whatever one process waits for on a GPU, the others can submit it. A turn ends when one member asks for
// that, and memory moves after all have drained. Members that conflict with other gangs offer to the eldest
// only (scheduler/planner.cpp), and since a turn has all its places before any gate opens, no two gangs wait
// for each other. A member that is out of contact delays the gang, and those to which an offer to it is in
// the way: nothing is decided without it that it would have to know. All that the coordinator knows follows
// from the reports, so that another one can go on from them. No clock is compared with another node's, except
// by age, where an error costs fairness at most.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <optional>

#include "arbiter/core/model/gang.h"

namespace sharedgpu {

// The pace of single submissions while a gang drains, as Tuning has it for the sessions of one node.
struct GangPace {
  Nanoseconds step_after = std::chrono::milliseconds(100);
  Nanoseconds step_pause = std::chrono::milliseconds(2);
  Nanoseconds most_pause = std::chrono::seconds(1);
};

class GangCoordinator {
 public:
  // It gives no orders before it has heard so many members, or before `knows_at`: there may be others with a
  // turn, or about to come.
  GangCoordinator(const GangPace& pace, Nanoseconds now, std::size_t nodes, Nanoseconds knows_at);

  // The same, but not before `until`.
  void await(Nanoseconds until);
  // A member is one from its first report on.
  void hear(unsigned member, const GangReport& report);
  // It is out of contact until it is heard again.
  void lose(unsigned member);
  // It is out of contact for so long that no turns are coordinated before it is heard.
  void give_up(unsigned member);
  // It has no processes, and is no member any more.
  void forget(unsigned member);

  // Decides what follows from the reports, as of now. `now` never goes back.
  void advance(Nanoseconds now);
  // As of the last advance(). None while it gives none.
  std::optional<GangOrder> order_for(unsigned member) const;
  // It gives orders.
  bool knows() const { return knows_; }
  // When to advance it again, if nothing is heard before.
  std::optional<Nanoseconds> wake() const { return wake_; }

 private:
  struct Member {
    bool in_contact = true;
    bool given_up = false;
    GangReport report;                           // the last one
    std::uint64_t steps = 0;                     // that it has been told; one that is out has none to make
    std::optional<Nanoseconds> stepped_at = {};  // last, and it has not drained since
  };

  bool all_in_contact() const;
  template <class Condition>
  bool any(Condition condition) const;
  bool can_begin() const;
  bool is_stuck() const;
  bool all_drained() const;
  bool has_drained(const Member& member) const;
  bool keeps_others_from_draining(Nanoseconds now);
  GangOrder common_order() const;
  GangCommand next(Nanoseconds now);
  void begin(GangCommand command, Nanoseconds now);
  void pace_steps(Nanoseconds now);

  const GangPace pace_;
  const std::size_t nodes_;
  Nanoseconds knows_at_;
  std::map<unsigned, Member> members_;
  bool knows_ = false;  // of the gang's turn
  GangCommand command_ = GangCommand::wait;
  bool urgent_ = false;  // it enters since a member cannot drain without the others
  Nanoseconds step_at_{};
  Nanoseconds step_pause_{};
  Nanoseconds since_{};
  std::optional<Nanoseconds> wake_;
  GangOrder common_;  // what all members are told
};

}  // namespace sharedgpu
