// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/numa.h"

#include <catch2/catch.hpp>

#include "tests/unit/interposer/memory/support/root.h"

using namespace sharedgpu;
using sharedgpu::test::Root;

TEST_CASE("the kernel tells the NUMA node of a GPU", "[numa]") {
  const Root root;
  const PciAddress gpu{.domain = 1, .bus = 0xab, .device = 2};
  const std::string file = "/sys/bus/pci/devices/0001:ab:02.0/numa_node";
  CHECK(numa_node_of(gpu, root.path()) == std::nullopt);
  root.write(file, "1\n");
  CHECK(numa_node_of(gpu, root.path()) == 1u);
  CHECK(numa_node_of({.domain = 1, .bus = 0xab, .device = 3}, root.path()) == std::nullopt);
  for (const char* text : {"-1\n", "", "what\n"}) {
    root.write(file, text);
    CHECK(numa_node_of(gpu, root.path()) == std::nullopt);
  }
}
