// SPDX-License-Identifier: Apache-2.0
// Device memory that is not charged to any job: simgpu-board, a process outside of all jobs, allocates the
// pages, so they count in its own memory cgroup, like memory on a GPU's board.
#pragma once

#include <string>

#include "protocol/channel.h"

namespace sharedgpu::simgpu {

// Makes the board at `socket` allocate this part of a memfd. Returns false if the board did not allocate it.
bool take_on_board(const std::string& socket, int file, std::uint64_t offset, Bytes size);

// Serves at `socket` for ever; returns an errno value on failure.
int serve_board(const std::string& socket);

}  // namespace sharedgpu::simgpu
