// SPDX-License-Identifier: Apache-2.0
#include "config/job_summary.h"

#include <chrono>
#include <cstdio>

#include "config/quantities.h"

namespace sharedgpu {
namespace {

std::string in_seconds(Nanoseconds time) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f s", std::chrono::duration<double>(time).count());
  return text;
}

}  // namespace

std::string format_summary_line(const SummaryLine& summary) {
  return summary.job + summary.place + ": " + in_seconds(summary.lease) + " with the GPU, " +
         in_seconds(summary.waited) + " waiting for it; moved " + format_size(summary.moved.evicted) +
         " to host memory, " + format_size(summary.moved.restored) + " back";
}

}  // namespace sharedgpu
