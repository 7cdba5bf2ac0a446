// SPDX-License-Identifier: Apache-2.0
// The coordinator of a gang: gives the members of a job that spans nodes their turns at the same time.
//
// A turn begins when all members have offered it, except members that are still leaving an earlier turn
// because they wait for others. Gates open when the memory of all members is resident. So if work of one
// process on a GPU waits for a submission of another process, the other process can submit. A turn ends when
// one member asks for its end. Memory moves only after all members have drained.
//
// If several gangs do not fit together, members offer a turn only to the eldest gang, the one that has waited
// longest (scheduler/planner.cpp). No gate of a gang opens before the gang is in the running sets of all its
// nodes. So no two gangs wait for each other. The coordinator begins a turn, opens gates, or ends a running
// turn at a member's request only while all members are in contact. So a member that is out of contact delays
// its gang. If nodes have offered a turn to this gang, the member also delays other gangs.
//
// The coordinator needs only the members' reports, so a new coordinator can continue from the next reports.
// Times of different nodes' clocks are compared only to find the eldest gang, so a wrong clock makes turns
// less fair and has no other effect.
//
// Pure: no socket, clock or thread. One thread at a time.
#pragma once

#include <map>
#include <optional>

#include "arbiter/core/model/gang.h"

namespace sharedgpu {

// The pace of steps. A step is a single submission that the coordinator permits while a gang drains. The
// core's Tuning has the same values for the sessions of one node.
struct GangPace {
  Nanoseconds step_after = std::chrono::milliseconds(100);
  Nanoseconds step_pause = std::chrono::milliseconds(2);
  Nanoseconds most_pause = std::chrono::seconds(1);
  // The longest pause between two orders that let a member enter because other members cannot drain without
  // that member. The pause doubles with each order. With a constant pause, two gangs could displace each
  // other again and again before one of them has restored its memory.
  Nanoseconds most_late_pause = std::chrono::seconds(10);
};

class GangCoordinator {
 public:
  GangCoordinator(const GangPace& pace, Nanoseconds now) : pace_(pace), since_(now) {}

  // Call when a report has come. A node's first report makes the node a member.
  void hear(unsigned member, const GangReport& report);
  // Call when the member has lost contact. The member is out of contact until its next report (hear()).
  void lose(unsigned member);
  // Call when the member's node is no longer a node of the job.
  void forget(unsigned member) { members_.erase(member); }
  // `apart`: a node of the job has been out of contact for so long that each node gives the gang's tenant
  // turns without orders.
  void set_apart(bool apart, Nanoseconds now);

  // Call when all nodes of the job have reported, or when the gang is apart. After this call, the coordinator
  // gives orders.
  void begin_orders(Nanoseconds now);
  bool gives_orders() const { return gives_orders_; }
  // Decides the next command of the gang from the reports, as of `now`, which never goes back.
  void advance(Nanoseconds now);
  // Returns the order as of the last advance(), or nullopt if the coordinator gives no orders yet.
  std::optional<GangOrder> order_for(unsigned member) const;
  // Returns when to call advance() again if no report comes earlier.
  std::optional<Nanoseconds> wake() const { return wake_; }

 private:
  struct Member {
    bool in_contact = true;
    GangReport report;        // the member's last report
    std::uint64_t steps = 0;  // number of steps that the member was ordered to make
    // When the last step was ordered. nullopt: no step was ordered since the turn began to end, or the member
    // has drained after the last step.
    std::optional<Nanoseconds> stepped_at = {};
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
  bool ran_ = false;     // gates may have opened in this turn, by the order `run` or without orders
  bool urgent_ = false;  // the gang enters because a member cannot drain without the others
  Nanoseconds step_at_{};
  Nanoseconds step_pause_{};
  Nanoseconds late_at_{};
  Nanoseconds late_pause_ = pace_.step_after;
  Nanoseconds since_{};
  std::optional<Nanoseconds> wake_;
  GangOrder common_;  // the part of an order that is the same for all members
};

}  // namespace sharedgpu
