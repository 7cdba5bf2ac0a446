// SPDX-License-Identifier: Apache-2.0
// Finds the host NUMA node nearest to a GPU.
#pragma once

#include <optional>
#include <string>

namespace sharedgpu {

struct PciAddress {
  int domain = 0;
  int bus = 0;
  int device = 0;
};

// The NUMA node that the Linux kernel reports for the device; nullopt if it reports none, or if its report
// cannot be read. `root` is the prefix of /sys, for tests.
std::optional<unsigned> numa_node_of(const PciAddress& address, const std::string& root = {});

}  // namespace sharedgpu
