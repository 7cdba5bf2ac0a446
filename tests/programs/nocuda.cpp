// SPDX-License-Identifier: Apache-2.0
// Uses no GPU: prints its memory maps, open descriptors, signals, limits and environment, for tests that look
// for traces of the library.
#include <iostream>

#include "tests/programs/command_line.h"
#include "tests/programs/traces.h"

int main(int argc, char** argv) {
  sharedgpu::programs::CommandLine app("Prints what it looks like from outside, without using CUDA.");
  app.parse(argc, argv);
  sharedgpu::programs::print_traces(std::cout);
  return std::cout.good() ? 0 : 1;
}
