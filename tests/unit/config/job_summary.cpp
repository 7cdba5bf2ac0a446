// SPDX-License-Identifier: Apache-2.0
#include "config/job_summary.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

TEST_CASE(
    "The line at the end of a job has its time with the GPU, its waiting and the memory moved each way") {
  SummaryLine summary{.job = "job 12",
                      .place = "",
                      .lease = 3120ms,
                      .waited = 40ms,
                      .moved = {.evicted = mebibytes(1280), .restored = Bytes{}}};
  CHECK(format_summary_line(summary) ==
        "job 12: 3.1 s with the GPU, 0.0 s waiting for it; moved 1.2 GiB to host memory, 0 B back");
  summary.job = "job 21_1";
  summary.place = " on the first of its 4 nodes";
  summary.moved.restored = gibibytes(100);
  CHECK(format_summary_line(summary) ==
        "job 21_1 on the first of its 4 nodes: 3.1 s with the GPU, 0.0 s waiting for it; moved 1.2 GiB to "
        "host "
        "memory, 100 GiB back");
}

}  // namespace
}  // namespace sharedgpu
