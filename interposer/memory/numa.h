// SPDX-License-Identifier: Apache-2.0
// Which of the host's memory is nearest to a GPU.
#pragma once

#include <optional>
#include <string>

namespace sharedgpu {

struct PciAddress {
  int domain = 0;
  int bus = 0;
  int device = 0;
};

// The NUMA node that the kernel tells for the device; nullopt: it knows none, or has no more than one.
// `root` stands before /sys, for tests.
std::optional<unsigned> numa_node_of(const PciAddress& address, const std::string& root = {});

}  // namespace sharedgpu
