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

TEST_CASE("The line about a program larger than the GPU has what moved in exchanges, and the time of that") {
  SummaryLine summary{.job = "job 12",
                      .place = "",
                      .lease = 3120ms,
                      .waited = 40ms,
                      .moved = {.evicted = gibibytes(3), .restored = gibibytes(2)},
                      .exchanges = {.moved = {.evicted = gibibytes(2), .restored = gibibytes(1)},
                                    .moving = 500ms,
                                    .waited = 700ms,
                                    .copied = {},
                                    .fastest = {},
                                    .slowed = 300ms},
                      .at_best = 400ms};
  const std::string begin =
      "job 12: 3.1 s with the GPU, 0.0 s waiting for it; moved 3 GiB to host memory, 2 GiB back";
  CHECK(format_summary_line(summary) ==
        begin +
            "; larger than the GPU: 2 GiB of this and 1 GiB back in exchanges, which took 0.5 s (0.4 s at "
            "the speed of the fastest one); threads waited 0.7 s for exchanges; kernels took about 0.3 s "
            "longer with memory away");
  summary.exchanges = {.waited = 500ms};
  summary.at_best = {};
  CHECK(format_summary_line(summary) == begin +
                                            "; larger than the GPU: 0 B of this and 0 B back in exchanges, "
                                            "which took 0.0 s; threads waited 0.5 s "
                                            "for exchanges");
}

}  // namespace
}  // namespace sharedgpu
