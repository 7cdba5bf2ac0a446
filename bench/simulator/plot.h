// SPDX-License-Identifier: Apache-2.0
// What a simulated node did over time, as an SVG: the part of the time that each program had a lease, and
// where limits or deadlines bound any, the most that each may have, with the deadlines that were missed.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Plot {
 public:
  // Of `length` in all; what is added at shorter intervals than can be told apart is left out.
  explicit Plot(Nanoseconds length) : length_(length), interval_(length / kPoints) {}

  struct Point {
    Nanoseconds lease{};  // so far
    double part = 1;      // of the time that it may have at most
    unsigned missed = 0;  // deadlines so far
  };
  bool wants(Nanoseconds at) const { return moments_.empty() || at - moments_.back().at >= interval_; }
  // One point a program, always as many.
  void add(Nanoseconds at, std::vector<Point> points) { moments_.push_back({at, std::move(points)}); }

  std::string svg(const std::string& title) const;

 private:
  static constexpr int kPoints = 450;
  struct Moment {
    Nanoseconds at;
    std::vector<Point> points;
  };
  double seconds() const;  // to be shown
  Nanoseconds length_;
  Nanoseconds interval_;
  std::vector<Moment> moments_;
};

}  // namespace sharedgpu
