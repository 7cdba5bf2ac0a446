// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/coordinator.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace sharedgpu {
namespace {

// Reports that contradict themselves could lead from each command to another one without end.
constexpr unsigned kMostCommands = 4;  // at one time

bool leaves(const GangReport& report) { return report.phase == Phase::leaving; }
bool enters(const GangReport& report) { return report.phase == Phase::entering; }
bool runs(const GangReport& report) { return report.phase == Phase::running; }
bool cannot_begin(const GangReport& report) {
  return report.present && report.phase == Phase::out && report.ends;
}

}  // namespace

GangCoordinator::GangCoordinator(const GangPace& pace, Nanoseconds now, std::size_t nodes,
                                 Nanoseconds knows_at)
    : pace_(pace), nodes_(nodes), knows_at_(knows_at), since_(now) {}

void GangCoordinator::await(Nanoseconds until) { knows_at_ = std::max(knows_at_, until); }

void GangCoordinator::hear(unsigned member, const GangReport& report) {
  const auto [it, is_new] = members_.try_emplace(member);
  Member& its = it->second;
  its.in_contact = true;
  its.given_up = false;
  its.report = report;
  if (is_new) its.steps = report.steps;
}

void GangCoordinator::lose(unsigned member) { members_.at(member).in_contact = false; }

void GangCoordinator::give_up(unsigned member) { members_.at(member).given_up = true; }

void GangCoordinator::forget(unsigned member) { members_.erase(member); }

// A member without processes has nothing to wait for, and keeps nobody waiting.
bool GangCoordinator::all_in_contact() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const auto& its) { return its.second.in_contact || !its.second.report.present; });
}

template <class Condition>
bool GangCoordinator::any(Condition condition) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const auto& its) { return condition(its.second.report); });
}

// A member that is leaving without having drained needs what the others have not submitted.
bool GangCoordinator::is_stuck() const {
  return any([](const GangReport& its) { return leaves(its) && !its.drained; });
}

// Those that leave are waited for, unless they cannot drain without the others.
bool GangCoordinator::can_begin() const {
  if (!any([](const GangReport& its) { return its.present; })) return false;
  return !any(
      [this](const GangReport& its) { return leaves(its) ? its.drained || !is_stuck() : !its.offers; });
}

// One that was not told that all are ready has opened no gate.
bool GangCoordinator::all_drained() const {
  return std::all_of(members_.begin(), members_.end(), [this](const auto& member) {
    const Member& its = member.second;
    if (!its.in_contact) return enters(its.report) || its.report.phase == Phase::out;
    return !its.report.present || has_drained(its);
  });
}

bool GangCoordinator::has_drained(const Member& its) const {
  return its.report.drained && its.report.steps == its.steps && !enters(its.report) && !runs(its.report);
}

// A process has come on a node where the gang had no place in its turn, and may hold what the others wait
// for.
bool GangCoordinator::keeps_others_from_draining(Nanoseconds now) {
  const auto is_outside = [](const GangReport& its) { return its.present && its.phase == Phase::out; };
  if (!all_in_contact() || !is_stuck() || !any(is_outside)) return false;
  if (now < step_at_) wake_ = step_at_;
  return now >= step_at_;
}

GangCommand GangCoordinator::next(Nanoseconds now) {
  const auto asks_for_end = [](const GangReport& its) { return its.ends; };
  switch (command_) {
    case GangCommand::wait:
      return all_in_contact() && can_begin() ? GangCommand::enter : command_;
    case GangCommand::enter: {
      if (!all_in_contact() || any(asks_for_end)) return GangCommand::leave;
      const auto is_awaited = [](const GangReport& its) { return !leaves(its) && !its.ready; };
      if (any(is_awaited)) return command_;
      return any(leaves) ? GangCommand::leave : GangCommand::run;
    }
    case GangCommand::run:
      return all_in_contact() && any(asks_for_end) ? GangCommand::leave : command_;
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
  urgent_ = command == GangCommand::enter && is_stuck();
  if (command == GangCommand::wait) since_ = now;
  if (command != GangCommand::leave) return;
  step_at_ = now + pace_.step_after;
  for (auto& [number, its] : members_) its.stepped_at.reset();
  step_pause_ = pace_.step_pause;
}

// As stepping.cpp does for the sessions of one node: those that have drained may hold what others wait for.
// Where it takes long until one has drained again, others may only have long kernels, and the next step waits
// as long.
void GangCoordinator::pace_steps(Nanoseconds now) {
  if (!all_in_contact()) return;
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
  wake_ = step_at_;
}

void GangCoordinator::advance(Nanoseconds now) {
  wake_.reset();
  if (!knows_) {
    if (members_.size() < nodes_ && now < knows_at_) {
      wake_ = knows_at_;
      return;
    }
    knows_ = true;
    // What an earlier coordinator began goes on.
    if (any(leaves))
      begin(GangCommand::leave, now);
    else if (any(enters) || any(runs))
      begin(GangCommand::enter, now);
  }
  unsigned left = kMostCommands;
  for (GangCommand command = next(now); command != command_ && left > 0; command = next(now), --left)
    begin(command, now);
  if (left == 0) wake_ = now + pace_.step_after;
  common_ = common_order();
}

GangOrder GangCoordinator::common_order() const {
  const auto is_given_up = [](const auto& its) { return its.second.given_up; };
  return {.command = command_,
          .possible = all_in_contact(),
          .apart = std::any_of(members_.begin(), members_.end(), is_given_up),
          .stopped = any(cannot_begin),
          .wanted = any([](const GangReport& its) { return its.wants; }),
          .idle = !any([](const GangReport& its) { return !its.idle; }),
          .settled = !any([](const GangReport& its) { return !its.settled; }),
          .urgent = urgent_,
          .drains = any([](const GangReport& its) { return !its.drained; }),
          .grows = any([](const GangReport& its) { return its.grows; }),
          .since = since_};
}

std::optional<GangOrder> GangCoordinator::order_for(unsigned member) const {
  const auto it = members_.find(member);
  if (!knows_ || it == members_.end()) return std::nullopt;
  GangOrder order = common_;
  order.seen = it->second.report.number;
  order.steps = it->second.steps;
  return order;
}

}  // namespace sharedgpu
