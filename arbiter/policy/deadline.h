// SPDX-License-Identifier: Apache-2.0
// deadline: the shares of elastic, where tenants with deadlines take from those of lower priority what they
// need (CudaMon, section 3.4). Each deadline that one misses halves the part of the time that each tenant of
// a lower priority may have; each that it meets gives them a hundredth of the time more, up to their own
// limit. So their part goes up and down about what leaves the deadlines met, as the congestion window of TCP.
//
// A part is a limit: who has had it waits, also while nobody uses the GPU, for it would be in the way of the
// next piece of work. Tenants with deadlines have the GPU for themselves while they run.
//
// A deadline is a matter of milliseconds, and a turn would be over too late for it. So a tenant with
// deadlines goes before all of a lower priority, and takes the GPU from them at once. But not where handoffs
// take more than a tenth of a deadline, since memory moves: they would come with every piece of its work, and
// cost more than that is worth; then it has its turns like any other. Nor from one whose processes wait for
// each other, if that took longer than the deadline when its last turn ended: both would lose by it. And it
// must have been given no more than is due to it by one deadline, or by half a step where that is more: so a
// piece of its work that can be done in time is done in one turn, and one that always has work is served as
// elastic would. Of a deadline of more than a tenth of a second so much counts: turns are short beside it.
//
// Beside it all others have the GPU one at a time: the queues of all that share it would have to drain first.
// And they have less queued than usual: a quarter of a deadline, 2 ms at least.
//
// Nobody starves: each keeps its own request at least, or a twentieth of the time where that is more, and
// waits no longer for that than elastic says. Who has told of no deadline for a while bounds nobody any more;
// see arbiter/core/deadlines.cpp.
#pragma once

#include <algorithm>
#include <cmath>

#include "arbiter/policy/elastic.h"
#include "protocol/messages.h"

namespace sharedgpu {

class Deadline final : public Elastic {
 public:
  using Elastic::Elastic;

  Rank rank(const TenantView& waiting, const TurnView& turn) const override {
    const int level = is_urgent(waiting, turn) ? 1 + kHighestPriority + waiting.claims.priority : 0;
    return {.level = level, .weight = standing_in_line(waiting)};
  }

  bool goes_on(const TenantView& running, const TenantView& waiting, const TurnView& turn) const override {
    if (goes_before(running, waiting, turn)) return true;
    return !goes_before(waiting, running, turn) && Elastic::goes_on(running, waiting, turn);
  }

  bool interrupts(const TenantView& waiting, const TenantView& running, const TurnView& turn) const override {
    return goes_before(waiting, running, turn) && peace_left(running, turn) == Nanoseconds{} &&
           running.drain < waiting.claims.deadline;
  }

  // Interruptions cost at most half of the time.
  Nanoseconds peace_left(const TenantView& running, const TurnView& turn) const override {
    return std::max(Nanoseconds{}, turn.turn.handoff - running.had);
  }

  bool rules_time(const Claims& claims) const override {
    return Elastic::rules_time(claims) || claims.deadline > Nanoseconds{};
  }
  bool rules_time_of_all(const Claims& claims) const override { return claims.deadline > Nanoseconds{}; }

  Nanoseconds queue_beside(const Claims& claims) const override {
    if (claims.deadline == Nanoseconds{}) return {};
    return std::clamp<Nanoseconds>(claims.deadline / kQueue, kShortestQueue, kLongestQueue);
  }

  double part_after(double part, const Claims& stated, const DeadlinesSeen& seen) const override {
    const double least = std::min(std::max(kLeast, stated.request), stated.limit);
    const double lowered = std::max(part * std::pow(kDecrease, static_cast<double>(seen.missed)), least);
    return std::clamp(lowered + kIncrease * static_cast<double>(seen.met), least, stated.limit);
  }

 protected:
  Nanoseconds allowance(const TenantView& tenant, const TurnView& turn) const override {
    const Nanoseconds piece = std::min<Nanoseconds>(tenant.claims.deadline, kLongestPiece);
    return std::max(Elastic::allowance(tenant, turn), is_quick(tenant, turn) ? piece : Nanoseconds{});
  }

 private:
  static constexpr double kDecrease = 0.5;
  static constexpr double kIncrease = 0.01;
  static constexpr double kLeast = 0.05;
  static constexpr int kQuick = 10;  // of handoffs, in a deadline
  static constexpr std::chrono::milliseconds kLongestPiece{100};
  static constexpr int kQueue = 4;  // in a deadline
  static constexpr std::chrono::milliseconds kShortestQueue{2};
  static constexpr std::chrono::milliseconds kLongestQueue{20};

  static bool is_quick(const TenantView& tenant, const TurnView& turn) {
    return tenant.claims.deadline > kQuick * std::max(tenant.handoff, turn.turn.handoff);
  }

  bool is_urgent(const TenantView& tenant, const TurnView& turn) const {
    return is_quick(tenant, turn) && tenant.credit > -allowance(tenant, turn);
  }

  bool goes_before(const TenantView& urgent, const TenantView& other, const TurnView& turn) const {
    return is_urgent(urgent, turn) && urgent.claims.priority > other.claims.priority;
  }
};

}  // namespace sharedgpu
