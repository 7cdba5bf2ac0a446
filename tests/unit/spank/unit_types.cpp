// SPDX-License-Identifier: Apache-2.0
#include "spank/unit_types.h"

#include <catch2/catch.hpp>

#include "protocol/messages.h"

namespace sharedgpu {
namespace {

Bytes memory(const char* types, const char* text) {
  Settings settings;
  REQUIRE(parse_settings(text, "x.conf", settings).empty());
  return memory_of_units(types, settings);
}

TEST_CASE("the memory of typed units is the sum of their sizes") {
  const char* const both = "SwapPerUnit=a100:10GiB,h100:auto\nGpuMemory=h100:80GiB\n";
  CHECK(memory("a100:2", both) == gibibytes(20));
  CHECK(memory("A100:2,h100:3", both) == gibibytes(50));
  CHECK(memory("h100:3", "SwapPerUnit=auto\nGpuMemory=a100:40GiB,h100:80GiB\n") == gibibytes(30));
  CHECK(memory("small:1", "SwapPerUnit=1GiB,large:auto\nGpuMemory=large:24GiB\n") == gibibytes(1));
  CHECK(memory("large:2", "SwapPerUnit=1GiB,large:auto\nGpuMemory=large:24GiB\n") == gibibytes(6));
}

TEST_CASE("the arbiter computes the memory of units if it does not depend on their types") {
  CHECK(memory("a100:2", "") == Bytes{});
  CHECK(memory("a100:2", "SwapPerUnit=unlimited\n") == Bytes{});
  CHECK(memory("a100:2", "SwapPerUnit=10GiB\n") == Bytes{});
  CHECK(memory("", "SwapPerUnit=a100:10GiB\n") == Bytes{});
  CHECK(memory("a100:2", "SwapPerUnit=auto\n") == Bytes{});
  CHECK(memory("a100:2", "SwapPerUnit=auto\nGpuMemory=h100:80GiB\n") == Bytes{});
}

TEST_CASE("units of a type that SwapPerUnit does not name are not limited") {
  CHECK(memory("a100:2,v100:1", "SwapPerUnit=a100:10GiB\n") == RegisterJob::kUnlimited);
}

TEST_CASE("a text that states no counts of types states no memory") {
  for (const char* text :
       {"a100", ":2", "a100:", "a100:x", "a100:-1", "a100:1000001", "a100:2,", "a100:1,,a100:1"})
    CHECK(memory(text, "SwapPerUnit=a100:10GiB,1GiB\n") == Bytes{});
}

TEST_CASE("any number of units has a memory") {
  CHECK(memory("a100:1000000,b:1000000", "SwapPerUnit=1TiB,a100:1000GiB\n") <= RegisterJob::kMostBrought);
  CHECK(memory("a100:1", "SwapPerUnit=1GiB,a100:1000TiB\n") == Bytes{});
}

}  // namespace
}  // namespace sharedgpu
