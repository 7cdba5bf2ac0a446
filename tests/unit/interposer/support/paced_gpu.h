// SPDX-License-Identifier: Apache-2.0
// A stream on a simulated GPU whose clock the test advances, and one thread that fills the stream by the rule
// of backlog/ahead.h.
#pragma once

#include <algorithm>
#include <deque>
#include <vector>

#include "interposer/backlog/ahead.h"

namespace sharedgpu::test {

class PacedGpu {
 public:
  // `pace`: the time that a submission takes.
  explicit PacedGpu(Nanoseconds pace, Nanoseconds goal = backlog::Ahead::kGoal) : pace_(pace) {
    aim_for(goal);
  }

  void aim_for(Nanoseconds goal) { ahead_.aim_for(goal); }

  void submit(Nanoseconds kernel) {
    begin();
    end_stalled();
    run(kernel);
    end();
  }
  // Submits a kernel that ends shortly after `submissions` further submissions.
  void submit_after(int submissions) {
    begin();
    end_stalled();
    run(kForEver);
    stalled_ = submissions;
    end();
  }
  void pause(Nanoseconds time) { now_ += time; }
  void queue_uncounted(Nanoseconds work) { run(work); }

  Nanoseconds now() const { return now_; }
  std::uint64_t window() const { return ahead_.window(); }
  Nanoseconds longest_queue() const { return longest_queue_; }
  Nanoseconds idle() const { return idle_; }
  Nanoseconds waited() const { return waited_; }
  int marks() const { return marks_; }
  int in_vain() const { return in_vain_; }
  void forget_statistics() {
    longest_queue_ = idle_ = waited_ = {};
    marks_ = in_vain_ = 0;
  }

 private:
  static constexpr Nanoseconds kNap = std::chrono::microseconds(150);
  static constexpr Nanoseconds kForEver = std::chrono::hours(1);

  void begin() {
    if (granted_ != 0) return;
    Nanoseconds since = now_;
    for (bool waited = false; ahead_.full(); waited = true) {
      const auto end = std::ranges::find_if(pending_, [this](Nanoseconds at) { return at > now_; });
      if (const auto passed = static_cast<std::size_t>(end - pending_.begin()); passed != 0) {
        ahead_.passed(passed, now_, waited);
        pending_.erase(pending_.begin(), end);
        since = now_;
        continue;
      }
      if (now_ - since >= ahead_.patience()) {
        ahead_.gave_up(now_);
        ++in_vain_;
        break;
      }
      now_ += kNap;
      waited_ += kNap;
    }
    given_ = granted_ = ahead_.begin(now_);
  }
  void run(Nanoseconds kernel) {
    now_ += pace_;
    if (done_ < now_) idle_ += now_ - done_;
    done_ = std::max(done_, now_) + kernel;
    if (stalled_ == 0 && kernel != kForEver) longest_queue_ = std::max(longest_queue_, done_ - now_);
  }
  void end() {
    if (--granted_ != 0 || !ahead_.count(given_)) return;
    pending_.push_back(done_);
    ahead_.marked();
    ++marks_;
  }
  void end_stalled() {
    if (stalled_ == 0 || --stalled_ != 0) return;
    done_ = now_ + std::chrono::microseconds(50);
    for (Nanoseconds& mark : pending_) mark = std::min(mark, done_);
  }

  const Nanoseconds pace_;
  backlog::Ahead ahead_;
  std::deque<Nanoseconds> pending_;  // times at which the GPU passes the fences
  std::uint32_t given_ = 0;
  std::uint32_t granted_ = 0;
  int stalled_ = 0;  // number of submissions for which the GPU still waits; 0: it does not wait
  Nanoseconds now_{};
  Nanoseconds done_{};  // time at which the GPU will have done all work
  Nanoseconds longest_queue_{};
  Nanoseconds idle_{};
  Nanoseconds waited_{};
  int marks_ = 0;
  int in_vain_ = 0;
};

}  // namespace sharedgpu::test
