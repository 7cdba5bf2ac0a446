// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/coordinator.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sharedgpu {
namespace {

// The maximum number of changes of the command in one call of advance(). Without a maximum, contradictory
// reports could change the command forever.
constexpr unsigned kMostCommands = 4;

bool leaves(const GangReport& report) { return report.phase == Phase::leaving; }
bool enters(const GangReport& report) { return report.phase == Phase::entering; }
bool runs(const GangReport& report) { return report.phase == Phase::running; }
bool is_outside(const GangReport& report) { return report.present && report.phase == Phase::out; }
bool cannot_begin(const GangReport& report) { return is_outside(report) && report.ends; }

}  // namespace

void GangCoordinator::hear(unsigned member, const GangReport& report) {
  const auto [it, is_new] = members_.try_emplace(member);
  Member& its = it->second;
  its.in_contact = true;
  its.report = report;
  if (is_new) its.steps = report.steps;
}

void GangCoordinator::lose(unsigned member) { members_.at(member).in_contact = false; }

bool GangCoordinator::all_in_contact() const {
  return std::all_of(members_.begin(), members_.end(), [](const auto& its) { return its.second.in_contact; });
}

// Returns true if a process may have started on a silent node that had no process of the job. The turn then
// has to end, since it does not include that node. It can end without that node: the new process submits
// nothing without an order, so no work of the other nodes waits for that process.
bool GangCoordinator::may_have_come() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const auto& its) { return !its.second.in_contact && !its.second.report.present; });
}

template <class Condition>
bool GangCoordinator::any(Condition condition) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& its) { return condition(its.second.report); });
}

// Returns true if a member is leaving and has not drained. This member may need a submission of another
// member.
bool GangCoordinator::is_stuck() const {
  return any([](const GangReport& its) { return leaves(its) && !its.drained; });
}

// Returns true if a turn can begin: all members that are not leaving offer it. If a member is leaving and has
// drained, the turn waits until that member has left. A member that is leaving and has not drained does not
// delay the turn, since it may need submissions of the others.
bool GangCoordinator::can_begin() const {
  if (!any([](const GangReport& its) { return its.present; })) return false;
  return !any(
      [this](const GangReport& its) { return leaves(its) ? its.drained || !is_stuck() : !its.offers; });
}

// A silent member that was entering, or was in no running set, has opened no gate if no order `run` was given
// in this turn. Such a member counts as drained.
bool GangCoordinator::all_drained() const {
  return std::all_of(members_.begin(), members_.end(), [this](const auto& member) {
    const Member& its = member.second;
    if (!its.report.present) return true;
    if (!its.in_contact) return !ran_ && (enters(its.report) || its.report.phase == Phase::out);
    return has_drained(its);
  });
}

bool GangCoordinator::has_drained(const Member& its) const {
  return its.report.drained && its.report.steps == its.steps && !enters(its.report) && !runs(its.report);
}

// Returns true if members may be waiting for a submission of a process on a node where the gang is in no
// running set.
bool GangCoordinator::keeps_others_from_draining(Nanoseconds now) {
  if (!all_in_contact() || !is_stuck() || !any(is_outside)) return false;
  if (now < late_at_) wake_ = late_at_;
  return now >= late_at_;
}

GangCommand GangCoordinator::next(Nanoseconds now) {
  const auto asks_for_end = [](const GangReport& its) { return its.ends; };
  switch (command_) {
    case GangCommand::wait:
      // A member that is running or draining has begun a turn without an order.
      if (is_stuck() || any(runs)) return GangCommand::leave;
      return all_in_contact() && can_begin() ? GangCommand::enter : command_;
    case GangCommand::enter: {
      if (!all_in_contact() || any(asks_for_end)) return GangCommand::leave;
      const auto is_awaited = [](const GangReport& its) { return !leaves(its) && !its.ready; };
      if (any(is_awaited)) return command_;
      return any(leaves) ? GangCommand::leave : GangCommand::run;
    }
    case GangCommand::run:
      return may_have_come() || (all_in_contact() && any(asks_for_end)) ? GangCommand::leave : command_;
    case GangCommand::leave:
      if (all_drained()) return GangCommand::wait;
      if (keeps_others_from_draining(now)) return GangCommand::enter;
      pace_steps(now);
      return command_;
  }
  return command_;
}

void GangCoordinator::begin(GangCommand command, Nanoseconds now) {
  command_ = command;
  if (command == GangCommand::wait) late_pause_ = pace_.step_after;
  if (command == GangCommand::leave && std::exchange(urgent_, false))
    late_pause_ = std::min(2 * late_pause_, pace_.most_late_pause);
  urgent_ = command == GangCommand::enter && is_stuck();
  if (command == GangCommand::wait) since_ = now;
  ran_ = command == GangCommand::run || (ran_ && command != GangCommand::wait);
  if (command != GangCommand::leave) return;
  step_at_ = now + pace_.step_after;
  late_at_ = now + late_pause_;
  for (auto& [number, its] : members_) its.stepped_at.reset();
  step_pause_ = pace_.step_pause;
}

// Lets drained members submit once more (a step), since other members may wait for this submission;
// stepping.cpp does the same for the sessions of one node. If a member takes long to drain after a step,
// perhaps its kernels take long, and no member waits for another. So the next step is delayed in proportion.
// There are no steps while a member is in no running set, since the submitted work could not end before this
// member enters.
void GangCoordinator::pace_steps(Nanoseconds now) {
  if (!all_in_contact() || any(is_outside)) return;
  std::vector<Member*> blocked;
  for (auto& [number, its] : members_)
    if (its.report.present && leaves(its.report) && has_drained(its)) blocked.push_back(&its);
  for (Member* its : blocked)
    if (const auto stepped_at = std::exchange(its->stepped_at, std::nullopt))
      step_at_ = std::max(step_at_, now + std::min(2 * (now - *stepped_at), pace_.most_pause));
  if (blocked.empty() || blocked.size() == members_.size()) return;
  if (now >= step_at_) {
    for (Member* its : blocked) {
      ++its->steps;
      its->stepped_at = now;
    }
    step_pause_ += pace_.step_pause / 64;
    step_at_ = now + step_pause_;
  }
  wake_ = std::min(step_at_, wake_.value_or(step_at_));
}

void GangCoordinator::begin_orders(Nanoseconds now) {
  gives_orders_ = true;
  adopt(now);
}

void GangCoordinator::set_apart(bool apart, Nanoseconds now) {
  const bool was_apart = std::exchange(apart_, apart);
  if (gives_orders_ && was_apart && !apart) adopt(now);
}

// Continues a turn that an earlier coordinator has begun, or that members have begun without orders.
void GangCoordinator::adopt(Nanoseconds now) {
  ran_ = any([](const GangReport& its) { return its.phase != Phase::out; });
  if (any(leaves))
    begin(GangCommand::leave, now);
  else if (any(enters) || any(runs))
    begin(GangCommand::enter, now);
  else
    begin(GangCommand::wait, now);
}

void GangCoordinator::advance(Nanoseconds now) {
  wake_.reset();
  if (!gives_orders_) return;
  unsigned left = kMostCommands;
  for (GangCommand command = next(now); command != command_ && left > 0; command = next(now), --left)
    begin(command, now);
  if (left == 0) wake_ = now + pace_.step_after;
  common_ = common_order();
}

GangOrder GangCoordinator::common_order() const {
  return {.command = command_,
          .possible = all_in_contact(),
          .apart = apart_,
          .stopped = any(cannot_begin),
          .wanted = any([](const GangReport& its) { return its.wants; }),
          .idle = !any([](const GangReport& its) { return !its.idle; }),
          .settled = !any([](const GangReport& its) { return !its.settled; }),
          .urgent = urgent_,
          .drains = any([](const GangReport& its) { return !its.drained; }),
          .grows = any([](const GangReport& its) { return its.grows; }),
          .lacks = command_ == GangCommand::leave && any(is_outside),
          .since = since_};
}

std::optional<GangOrder> GangCoordinator::order_for(unsigned member) const {
  const auto it = members_.find(member);
  if (!gives_orders_ || it == members_.end()) return std::nullopt;
  GangOrder order = common_;
  order.seen = it->second.report.number;
  order.steps = it->second.steps;
  return order;
}

}  // namespace sharedgpu
