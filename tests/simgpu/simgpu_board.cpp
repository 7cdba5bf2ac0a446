// SPDX-License-Identifier: Apache-2.0
// simgpu-board SOCKET: allocates the memory of simulated GPUs for programs with SIMGPU_BOARD=SOCKET.
#include <cstdio>
#include <cstring>

#include "tests/simgpu/board.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: simgpu-board SOCKET\n");
    return 2;
  }
  const int error = sharedgpu::simgpu::serve_board(argv[1]);
  std::fprintf(stderr, "simgpu-board: %s: %s\n", argv[1], std::strerror(error));
  return 1;
}
