// SPDX-License-Identifier: Apache-2.0
// Device memory that is not charged to any job, like the memory of a real GPU. The pages are allocated by
// simgpu-board, a process outside of all jobs, so they are charged to the memory cgroup of simgpu-board.
#pragma once

#include <string>

#include "protocol/channel.h"

namespace sharedgpu::simgpu {

// Makes the board at `socket` allocate this part of a memfd. Returns false if the board did not allocate it.
bool take_on_board(const std::string& socket, int file, std::uint64_t offset, Bytes size);

// Allocates memory for clients that connect to `socket`. Returns only on a failure, with an errno value.
int serve_board(const std::string& socket);

}  // namespace sharedgpu::simgpu
