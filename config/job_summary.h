// SPDX-License-Identifier: Apache-2.0
// Formats the line about a job's use of the GPU. The SPANK plugin and `sharedgpu run` print this line at the
// end of a job; see Summary= in sharedgpu.conf(5). Pure; any thread.
#pragma once

#include <string>

#include "protocol/messages.h"

namespace sharedgpu {

struct SummaryLine {
  std::string job;    // "job 12", or "job 21_1"
  std::string place;  // " on the first of its 4 nodes"; empty if the job has one node
  Nanoseconds lease{};
  Nanoseconds waited{};
  Traffic moved = {};
  Exchanges exchanges = {};  // all zero: no exchange has taken place, and no kernel has become slower
  Nanoseconds at_best{};     // exchanges.moving_at_best()
};

// Returns "job 12: 3.1 s with the GPU, 1.0 s waiting for it; moved 1.2 GiB to host memory, 1.1 GiB back". If
// `exchanges` is not all zero, a second part follows: "; larger than the GPU: 1.1 GiB of this and 1.1 GiB
// back in exchanges, which took 0.5 s (0.4 s at the speed of the fastest one); threads waited 0.7 s for
// exchanges; kernels took about 0.3 s longer with memory away".
std::string format_summary_line(const SummaryLine& summary);

}  // namespace sharedgpu
