// SPDX-License-Identifier: Apache-2.0
// Uses the GPU, and prints the state of the process as seen from outside (see traces.h).
#include <iostream>

#include "tests/programs/command_line.h"
#include "tests/programs/program.h"
#include "tests/programs/traces.h"

using namespace sharedgpu::programs;

int main(int argc, char** argv) {
  CommandLine app("Uses the GPU and prints what it looks like from outside.");
  app.parse(argc, argv);
  start();
  Kernels kernels;
  Buffer buffer(kernels, std::size_t{64} << 20, 1);
  buffer.step(0, nullptr);
  check(cuCtxSynchronize(), "cuCtxSynchronize");
  print_traces(std::cout);
  if (!buffer.verify(1, nullptr)) fail("the device memory is wrong");
  buffer.free();
  return std::cout.good() ? 0 : 1;
}
