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
  // Between two tries to let a member come that others cannot drain without. It doubles with each: two such
  // gangs put each other out, until one of them has had time for its memory.
  Nanoseconds most_late_pause = std::chrono::seconds(10);
};

class GangCoordinator {
 public:
  GangCoordinator(const GangPace& pace, Nanoseconds now) : pace_(pace), since_(now) {}

  // A member is one from its first report on.
  void hear(unsigned member, const GangReport& report);
  // It is out of contact until it is heard again.
  void lose(unsigned member);
  // Its node is no longer one of the job's.
  void forget(unsigned member) { members_.erase(member); }
  // A node of the job is out of contact for so long that each has its turns by itself, or that has ended.
  void set_apart(bool apart, Nanoseconds now);

  // All nodes of the job have been heard, or are given up: there are orders from now on.
  void begin_orders(Nanoseconds now);
  bool gives_orders() const { return gives_orders_; }
  // Decides what follows from the reports, as of now. `now` never goes back.
  void advance(Nanoseconds now);
  // As of the last advance(). None while it gives none.
  std::optional<GangOrder> order_for(unsigned member) const;
  // When to advance it again, if nothing is heard before.
  std::optional<Nanoseconds> wake() const { return wake_; }

 private:
  struct Member {
    bool in_contact = true;
    GangReport report;                           // the last one
    std::uint64_t steps = 0;                     // that it has been told; one that is out has none to make
    std::optional<Nanoseconds> stepped_at = {};  // last, and it has not drained since
  };

  bool all_in_contact() const;
  bool may_have_come() const;
  template <class Condition>
  bool any(Condition condition) const;
  bool can_begin() const;
  bool is_stuck() const;
  bool all_drained() const;
  bool has_drained(const Member& member) const;
  bool keeps_others_from_draining(Nanoseconds now);
  GangOrder common_order() const;
  void adopt(Nanoseconds now);
  GangCommand next(Nanoseconds now);
  void begin(GangCommand command, Nanoseconds now);
  void pace_steps(Nanoseconds now);

  const GangPace pace_;
  std::map<unsigned, Member> members_;
  bool gives_orders_ = false;
  bool apart_ = false;
  GangCommand command_ = GangCommand::wait;
  bool ran_ = false;     // in this turn gates may have opened
  bool urgent_ = false;  // it enters since a member cannot drain without the others
  Nanoseconds step_at_{};
  Nanoseconds step_pause_{};
  Nanoseconds late_at_{};
  Nanoseconds late_pause_ = pace_.step_after;
  Nanoseconds since_{};
  std::optional<Nanoseconds> wake_;
  GangOrder common_;  // what all members are told
};

}  // namespace sharedgpu
