// SPDX-License-Identifier: Apache-2.0
// An SVG plot of a simulated node over time: the percentage of the time for which each program held a lease.
// If a program was limited or missed a deadline, the plot also shows the largest percentage that each program
// may have, and the missed deadlines. Pure.
#pragma once

#include <string>
#include <vector>

#include "protocol/units.h"

namespace sharedgpu {

class Plot {
 public:
  // The time axis covers `length`. The caller adds no points that are too close together for the plot; see
  // wants().
  explicit Plot(Nanoseconds length) : length_(length), interval_(length / kPoints) {}

  struct Point {
    Nanoseconds lease{};  // lease time so far
    double part = 1;      // upper limit on the program's part of the time
    unsigned missed = 0;  // missed deadlines so far
  };
  bool wants(Nanoseconds at) const { return moments_.empty() || at - moments_.back().at >= interval_; }
  // Adds one point for each program. Must always be called with the same number of points.
  void add(Nanoseconds at, std::vector<Point> points) { moments_.push_back({at, std::move(points)}); }

  std::string svg(const std::string& title) const;

 private:
  static constexpr int kPoints = 450;
  struct Moment {
    Nanoseconds at;
    std::vector<Point> points;
  };
  double seconds() const;  // length of the time axis
  Nanoseconds length_;
  Nanoseconds interval_;
  std::vector<Moment> moments_;
};

}  // namespace sharedgpu
