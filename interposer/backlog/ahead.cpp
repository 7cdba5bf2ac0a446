// SPDX-License-Identifier: Apache-2.0
#include "interposer/backlog/ahead.h"

#include <algorithm>

namespace sharedgpu::backlog {
namespace {

using namespace std::chrono_literals;

// About this many fences are recorded for each window() of submissions, or one for each submission if
// window() is small: few enough to cost nothing, and many enough that the GPU still has work when a fence
// passes.
constexpr std::uint64_t kIntervals = 8;
// The largest window(), even if submissions are very short. This number is well below the thousand
// submissions at which a launch blocks in the driver: a thread that blocks in the driver sees no fence pass,
// and would not learn that submissions have become longer.
constexpr std::uint64_t kMostAhead = 512;
constexpr Nanoseconds kLeastPatience = 20ms;

}  // namespace

std::uint64_t Ahead::window() const {
  const auto fit = (goal_ + cost_ / 2) / std::max<Nanoseconds>(cost_, 1ns);
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(fit), 1, kMostAhead);
}

std::uint64_t Ahead::interval() const { return std::max<std::uint64_t>(window() / kIntervals, 1); }

Nanoseconds Ahead::patience() const {
  const Nanoseconds expected =
      marks_.empty() ? 0ns : cost_ * static_cast<std::int64_t>(marks_.front().submissions);
  return std::min(base_patience_ + expected, kMostPatience);
}

void Ahead::gave_up(Nanoseconds now) {
  gave_up_ = now;
  base_patience_ = std::max(base_patience_ / 2, kLeastPatience);
}

std::uint32_t Ahead::begin(Nanoseconds now) {
  if (next_.submissions == 0) next_.began = now;
  if (full() || next_.submissions >= interval()) return 1;
  return static_cast<std::uint32_t>(interval() - next_.submissions);
}

bool Ahead::count(std::uint32_t submissions, Nanoseconds let_in) {
  next_.began = std::max(next_.began, let_in);
  next_.submissions += submissions;
  unfinished_ += submissions;
  return next_.submissions >= interval();
}

void Ahead::marked() {
  marks_.push_back(next_);
  next_ = {};
}

void Ahead::not_marked() {
  unfinished_ -= next_.submissions;
  next_ = {};
}

void Ahead::passed(std::size_t marks, Nanoseconds now, bool seen_before) {
  const Nanoseconds began = marks_.front().began;
  std::uint64_t submissions = 0;
  for (std::size_t i = 0; i < marks; ++i) submissions += marks_[i].submissions;
  marks_.erase(marks_.begin(), marks_.begin() + static_cast<std::ptrdiff_t>(marks));
  unfinished_ -= submissions;

  // If a fence passes soon after a thread gave up waiting and submitted, the GPU has most likely been waiting
  // for that submission.
  const bool helped = gave_up_ && now - *gave_up_ < base_patience_ / 8;
  // All submissions of the passed fences ran between `from` and `now`. So `now - from` is an upper bound of
  // their GPU time, and is exact if both their beginning and their end were observed.
  const Nanoseconds from = std::max(began, at_it_since_.value_or(began));
  const bool exact = seen_before && at_it_since_.has_value() && !helped;
  learn((now - from) / static_cast<std::int64_t>(submissions), exact);

  if (seen_before && !helped) base_patience_ = kFirstPatience;
  gave_up_.reset();

  at_it_since_.reset();
  if (seen_before || unfinished_ == 0) at_it_since_ = now;
}

// An exact sample longer than the estimate replaces the estimate at once, so that the queue does not grow. A
// shorter sample lowers the estimate gradually, so that a few short kernels among long ones do not raise the
// number of unfinished submissions.
void Ahead::learn(Nanoseconds sample, bool exact) {
  if (sample < cost_)
    cost_ -= (cost_ - sample) / 4;
  else if (exact)
    cost_ = sample;
}

}  // namespace sharedgpu::backlog
