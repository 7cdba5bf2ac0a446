// SPDX-License-Identifier: Apache-2.0
// Does a piece of work on the GPU in each period, and reports to sharedgpu whether the work met its deadline.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "include/sharedgpu_deadline.h"
#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

namespace {

struct Options {
  unsigned pieces = 100;
  double period_ms = 33;
  double kernel_ms = 4;
  double deadline_ms = 20;
  std::string report = "pipe";
  double stay = 0;
};

void tell(const Options& options, bool met) {
  if (options.report == "stderr") {
    std::fprintf(stderr, met ? "pass\n" : "missed\n");
  } else if (options.report == "pipe" && std::getenv("SHAREDGPU_DEADLINE") != nullptr) {
    if (sharedgpu_deadline(met ? 1 : 0) != 0) fail("nobody was told of a deadline");
  }
}

void run(const Options& options) {
  start();
  const Kernels kernels;
  const auto spin = static_cast<std::uint64_t>(options.kernel_ms * 1e6);
  unsigned met = 0;
  auto due = Clock::now();
  for (unsigned i = 0; i < options.pieces; ++i) {
    std::this_thread::sleep_until(due);
    const auto came = Clock::now();
    launch(kernels["spin"], 1, nullptr, {&spin});
    check(cuCtxSynchronize(), "cuCtxSynchronize");
    const bool in_time = Clock::now() - came <= Milliseconds(options.deadline_ms);
    met += in_time ? 1 : 0;
    tell(options, in_time);
    due = std::max(due + std::chrono::duration_cast<Clock::duration>(Milliseconds(options.period_ms)),
                   Clock::now());
    if (i % 10 == 0) {
      std::printf("paced: pid %d: %u met, %u missed\n", getpid(), met, i + 1 - met);
      std::fflush(stdout);
    }
  }
  std::printf("paced: pid %d: %u met, %u missed in all\n", getpid(), met, options.pieces - met);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::duration<double>(options.stay));
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Does a piece of work in each period, and tells whether it was done in time.");
  Options options;
  app.add_option("--pieces", options.pieces, "how many").positive();
  app.add_option("--period-ms", options.period_ms,
                 "time from the start of a piece to the start of the next piece")
      .positive();
  app.add_option("--kernel-ms", options.kernel_ms, "how long it takes on the GPU").positive();
  app.add_option("--deadline-ms", options.deadline_ms, "how soon it is to be done").not_negative();
  app.add_option("--report", options.report, "how it tells").one_of({"pipe", "stderr", "no"});
  app.add_option("--stay", options.stay, "seconds to stay when all is done").not_negative();
  app.parse(argc, argv);
  return status_of([&] { run(options); });
}
