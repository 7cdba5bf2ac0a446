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

std::string format_exchanges(const Exchanges& exchanges, Nanoseconds at_best) {
  if (exchanges == Exchanges{}) return {};
  std::string text = "; larger than the GPU: " + format_size(exchanges.moved.evicted) + " of this and " +
                     format_size(exchanges.moved.restored) + " back in exchanges, which took " +
                     in_seconds(exchanges.moving);
  if (at_best != Nanoseconds{}) text += " (" + in_seconds(at_best) + " at the speed of the fastest one)";
  text += "; threads waited " + in_seconds(exchanges.waited) + " for exchanges";
  if (exchanges.slowed != Nanoseconds{})
    text += "; kernels took about " + in_seconds(exchanges.slowed) + " longer with memory away";
  return text;
}

}  // namespace

std::string format_summary_line(const SummaryLine& summary) {
  return summary.job + summary.place + ": " + in_seconds(summary.lease) + " with the GPU, " +
         in_seconds(summary.waited) + " waiting for it; moved " + format_size(summary.moved.evicted) +
         " to host memory, " + format_size(summary.moved.restored) + " back" +
         format_exchanges(summary.exchanges, summary.at_best);
}

}  // namespace sharedgpu
