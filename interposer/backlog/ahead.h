// SPDX-License-Identifier: Apache-2.0
// The backlog limit: how much work a stream may have queued on an oversubscribed GPU. The limit is about 20
// ms, or less if other tenants have deadlines, since the end of a turn waits for all queued work.
//
// Submissions are counted. After every few submissions the user of this class records a fence (an event) in
// the stream. From the times at which fences pass, the class estimates how many submissions take the goal
// time, and no more submissions than that may be unfinished. The class is a pure rule: its user records the
// fences, polls the fences and waits for them. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::backlog {

class Ahead {
 public:
  static constexpr Nanoseconds kGoal = std::chrono::milliseconds(20);
  // Sets how much work may be queued, as GPU time. `goal` is greater than zero.
  void aim_for(Nanoseconds goal) { goal_ = goal; }

  // The longest time for which one submission waits while no fence passes. This time is bounded because a
  // kernel may be waiting for that submission.
  static constexpr Nanoseconds kMostPatience = std::chrono::milliseconds(500);

  // Returns true if the next submission must wait until a fence passes, for at most patience().
  bool full() const { return !marks_.empty() && unfinished_ >= window(); }
  Nanoseconds patience() const;
  // Call this if the wait timed out and one submission is made anyway. The fixed part of patience() is then
  // halved, to 20 ms at least, since the GPU may be waiting for many submissions.
  void gave_up(Nanoseconds now);

  // Estimated GPU time of one submission.
  Nanoseconds submission() const { return cost_; }
  // Estimated upper bound of the GPU time of all unfinished submissions and the next one.
  Nanoseconds expected() const { return cost_ * static_cast<std::int64_t>(unfinished_ + 1); }

  // Called before a submission. Returns the number of submissions that may be made before the caller has to
  // count them.
  std::uint32_t begin(Nanoseconds now);
  // Counts submissions that were made. The gate let the first of these submissions through at `let_in` or
  // later. Before `let_in`, the submission may have waited for another tenant's turn to end. Returns true if
  // a fence should be recorded after these submissions.
  bool count(std::uint32_t submissions, Nanoseconds let_in = {});
  void marked();
  // Call marked() when a fence has been recorded, and not_marked() if no fence could be recorded. After
  // not_marked(), the submissions since the previous fence are no longer counted.
  void not_marked();

  // Call this when the first `marks` fences have passed. `seen_before` is true if a poll a moment ago found
  // that the first of these fences had not passed yet.
  void passed(std::size_t marks, Nanoseconds now, bool seen_before);

  // The number of submissions that may be unfinished at a time.
  std::uint64_t window() const;

 private:
  struct Mark {
    std::uint64_t submissions = 0;  // number of submissions between the previous fence and this one
    Nanoseconds began{};            // time just before the first of these submissions
  };
  std::uint64_t interval() const;
  void learn(Nanoseconds sample, bool exact);

  Nanoseconds goal_ = kGoal;
  std::vector<Mark> marks_;       // one entry for each fence that has not passed yet
  Mark next_;                     // the submissions since the last fence
  std::uint64_t unfinished_ = 0;  // submissions of all fences in marks_ and of next_
  // GPU time of a submission. The initial value is too high rather than too low; the first samples correct
  // it.
  Nanoseconds cost_ = std::chrono::milliseconds(5);
  // The time at which the GPU began to work on the first fence's submissions, or became idle; nullopt if
  // unknown.
  std::optional<Nanoseconds> at_it_since_;
  std::optional<Nanoseconds> gave_up_;  // when a wait last timed out, if no fence has passed since
  Nanoseconds base_patience_ = kFirstPatience;

  static constexpr Nanoseconds kFirstPatience = std::chrono::milliseconds(100);
};

}  // namespace sharedgpu::backlog
