// SPDX-License-Identifier: Apache-2.0
// Gets a thousand signals a second, with a handler that does not restart system calls, while it waits for its
// turns.
#include <sys/time.h>

#include <csignal>
#include <cstdio>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"

using namespace sharedgpu::programs;

namespace {

volatile std::sig_atomic_t signals = 0;

void count(int) { signals = signals + 1; }

}  // namespace

int main(int argc, char** argv) {
  CommandLine app("Works on the GPU while the process gets many signals.");
  std::string bytes = "128MiB";
  std::uint64_t steps = 60;
  app.add_option("--bytes", bytes, "device memory");
  app.add_option("--steps", steps, "kernels");
  app.parse(argc, argv);

  struct sigaction action = {};
  action.sa_handler = count;
  if (sigaction(SIGALRM, &action, nullptr) != 0) fail("sigaction failed");
  itimerval every = {.it_interval = {.tv_sec = 0, .tv_usec = 1000},
                     .it_value = {.tv_sec = 0, .tv_usec = 1000}};
  if (setitimer(ITIMER_REAL, &every, nullptr) != 0) fail("setitimer failed");
  try {
    start();
    exercise(parse_size(bytes, 0), 1, steps);
  } catch (const std::exception& error) {
    fail(error.what());
  }
  if (signals == 0) fail("no signal came");
  std::printf("signals: %d signals, every byte verified\n", static_cast<int>(signals));
  return 0;
}
