// SPDX-License-Identifier: Apache-2.0
#include "arbiter/gang/coordinator.h"

#include <algorithm>
#include <utility>

namespace sharedgpu {
namespace {

bool leaves(const GangReport& report) { return report.phase == Phase::leaving; }
bool enters(const GangReport& report) { return report.phase == Phase::entering; }
bool runs(const GangReport& report) { return report.phase == Phase::running; }

}  // namespace

GangCoordinator::GangCoordinator(std::size_t members, const GangPace& pace, Nanoseconds now)
    : pace_(pace), members_(members), since_(now) {}

void GangCoordinator::hear(std::size_t member, const GangReport& report) {
  members_[member].in_contact = true;
  members_[member].report = report;
}

void GangCoordinator::lose(std::size_t member) { members_[member].in_contact = false; }

bool GangCoordinator::all_in_contact() const {
  return std::all_of(members_.begin(), members_.end(), [](const Member& its) { return its.in_contact; });
}

template <class Condition>
bool GangCoordinator::any(Condition condition) const {
  return std::any_of(members_.begin(), members_.end(),
                     [&](const Member& its) { return its.report && condition(*its.report); });
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
  return std::all_of(members_.begin(), members_.end(), [this](const Member& its) {
    if (!its.in_contact) return enters(*its.report) || its.report->phase == Phase::out;
    return !its.report->present || has_drained(its);
  });
}

bool GangCoordinator::has_drained(const Member& its) const {
  return its.report->drained && its.report->steps == its.steps && !enters(*its.report) && !runs(*its.report);
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
  for (Member& its : members_) its.stepped_at.reset();
  step_pause_ = pace_.step_pause;
}

// As stepping.cpp does for the sessions of one node: those that have drained may hold what others wait for.
// Where it takes long until one has drained again, others may only have long kernels, and the next step waits
// as long.
void GangCoordinator::pace_steps(Nanoseconds now) {
  if (!all_in_contact()) return;
  std::vector<Member*> blocked;
  for (Member& its : members_)
    if (its.report->present && has_drained(its)) blocked.push_back(&its);
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
    if (!all_in_contact()) return;
    knows_ = true;
    // What an earlier coordinator began goes on.
    if (any(leaves))
      begin(GangCommand::leave, now);
    else if (any(enters) || any(runs))
      begin(GangCommand::enter, now);
    for (Member& its : members_) its.steps = its.report->steps;
  }
  for (GangCommand command = next(now); command != command_; command = next(now)) begin(command, now);
}

std::optional<GangOrder> GangCoordinator::order_for(std::size_t member) const {
  if (!knows_ || !members_[member].report) return std::nullopt;
  const bool possible = all_in_contact();
  return GangOrder{.seen = members_[member].report->number,
                   .command = command_,
                   .possible = possible,
                   .wanted = any([](const GangReport& its) { return its.wants; }),
                   .idle = !any([](const GangReport& its) { return !its.idle; }),
                   .settled = !any([](const GangReport& its) { return !its.settled; }),
                   .urgent = urgent_,
                   .drains = any([](const GangReport& its) { return !its.drained; }),
                   .grows = any([](const GangReport& its) { return its.grows; }),
                   .steps = members_[member].steps,
                   .since = since_};
}

}  // namespace sharedgpu
