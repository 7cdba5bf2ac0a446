// SPDX-License-Identifier: Apache-2.0
// A simulated clock with a queue of events. The events happen one after another, without waits between them.
//
// Events at the same time happen in the order in which they were scheduled. Not thread-safe.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu::simulation {

class Timeline {
 public:
  using Task = std::function<void()>;
  static constexpr Nanoseconds kBegin = std::chrono::seconds(1000);

  Nanoseconds now() const { return now_; }

  // Schedules an event. If `time` is in the past, the event happens at the present time.
  void at(Nanoseconds time, Task task) {
    plans_.push_back({.at = std::max(time, now_), .order = ++order_, .task = std::move(task)});
    std::push_heap(plans_.begin(), plans_.end());
  }

  // Returns the time of the next event; nullopt if nothing is scheduled.
  std::optional<Nanoseconds> next() const {
    return plans_.empty() ? std::nullopt : std::optional(plans_.front().at);
  }

  // Advances to the next event and returns its task, which the caller calls. Call only if an event is
  // scheduled.
  Task go_on() {
    std::pop_heap(plans_.begin(), plans_.end());
    Plan plan = std::move(plans_.back());
    plans_.pop_back();
    now_ = plan.at;
    return std::move(plan.task);
  }

  // Sets the time. Call only if no event is scheduled before `time`.
  void skip_to(Nanoseconds time) { now_ = std::max(now_, time); }

  // Sets the alarm, like the core's action ArmTimer. There is only one alarm, so this call replaces the
  // previous alarm. With nullopt there is no alarm.
  void set_alarm(std::optional<Nanoseconds> time, Task task) {
    const std::uint64_t number = ++alarms_;
    alarm_ = time;
    if (!time) return;
    at(*time, [this, number, ring = std::move(task)] {
      if (alarms_ != number) return;
      alarm_.reset();
      ring();
    });
  }
  std::optional<Nanoseconds> alarm() const { return alarm_; }

 private:
  struct Plan {
    Nanoseconds at;
    std::uint64_t order;
    Task task;
    bool operator<(const Plan& other) const { return std::tie(at, order) > std::tie(other.at, other.order); }
  };

  Nanoseconds now_ = kBegin;
  std::vector<Plan> plans_;  // a heap; the next event is the first
  std::uint64_t order_ = 0;
  std::uint64_t alarms_ = 0;  // the number of the current alarm
  std::optional<Nanoseconds> alarm_;
};

}  // namespace sharedgpu::simulation
