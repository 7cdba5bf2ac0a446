// SPDX-License-Identifier: Apache-2.0
// Device memory that is nobody's host memory: a process outside of all jobs, simgpu-board, takes the pages,
// so that they are charged to its memory cgroup and not to the job's. A GPU has its memory on its own board.
#pragma once

#include <string>

#include "protocol/channel.h"

namespace sharedgpu::simgpu {

// Has the board at `socket` take this part of a memfd. False: it did not.
bool take_on_board(const std::string& socket, int file, std::uint64_t offset, Bytes size);

// Serves at `socket` for ever; returns an errno value where it cannot.
int serve_board(const std::string& socket);

}  // namespace sharedgpu::simgpu
