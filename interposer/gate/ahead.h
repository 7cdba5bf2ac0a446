// SPDX-License-Identifier: Apache-2.0
// How much work a stream may have queued ahead of the GPU while that is oversubscribed: about 20 ms, or less
// where others have deadlines, since the end of a turn waits for all of it.
//
// Submissions are counted. Behind every few of them a mark (an event) goes into the stream, and only so many
// submissions may be unfinished as take that time, by what was seen of earlier marks. A pure rule: its user
// makes the marks, looks whether they have passed, and does the waiting. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::gate {

class Ahead {
 public:
  static constexpr Nanoseconds kGoal = std::chrono::milliseconds(20);
  // From now on queues are to be as long as `goal`, more than nothing.
  void aim_for(Nanoseconds goal) { goal_ = goal; }

  // The longest that one submission is held up. A kernel may be waiting for it.
  static constexpr Nanoseconds kMostPatience = std::chrono::milliseconds(500);

  // Whether the next submission is to wait until a mark passes, for patience() at most.
  bool full() const { return !marks_.empty() && unfinished_ >= window(); }
  Nanoseconds patience() const;
  // The wait was in vain, and one submission is made all the same. The next one is held up for half as long,
  // as the GPU may be waiting for many.
  void gave_up(Nanoseconds now);

  // How long the GPU is at one submission, by what was seen.
  Nanoseconds submission() const { return cost_; }
  // How long it will be at all that is unfinished and the next submission, at most, by what was seen.
  Nanoseconds expected() const { return cost_ * static_cast<std::int64_t>(unfinished_ + 1); }

  // A submission is about to be made. How many may be, until they are counted.
  std::uint32_t begin(Nanoseconds now);
  // So many were made, the first of them not before `let_in`: until then it may have waited for another's
  // turn to end. True: it is time for a mark behind them.
  bool count(std::uint32_t submissions, Nanoseconds let_in = {});
  void marked();
  // There can be no mark, and so nothing to wait for.
  void not_marked();

  // The first `marks` marks have passed. `seen_before`: a moment ago the first of them had not.
  void passed(std::size_t marks, Nanoseconds now, bool seen_before);

  // How many submissions may be unfinished.
  std::uint64_t window() const;

 private:
  struct Mark {
    std::uint64_t submissions = 0;  // between the mark before and this one
    Nanoseconds began{};            // when the first of them was about to be made
  };
  std::uint64_t interval() const;
  void learn(Nanoseconds sample, bool exact);

  Nanoseconds goal_ = kGoal;
  std::vector<Mark> marks_;       // that have not passed
  Mark next_;                     // what there is behind the last of them
  std::uint64_t unfinished_ = 0;  // all of their submissions
  // What a submission takes. At first rather too much, which is soon found out.
  Nanoseconds cost_ = std::chrono::milliseconds(5);
  // Since when the GPU has been at the submissions of the first mark, or idle; nullopt: nobody saw.
  std::optional<Nanoseconds> at_it_since_;
  std::optional<Nanoseconds> gave_up_;  // since a mark has passed
  Nanoseconds base_patience_ = kFirstPatience;

  static constexpr Nanoseconds kFirstPatience = std::chrono::milliseconds(100);
};

}  // namespace sharedgpu::gate
