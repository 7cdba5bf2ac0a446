// SPDX-License-Identifier: Apache-2.0
#include "config/swap_per_unit.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

TypedSizes sizes(const char* text) { return *parse_typed_sizes(text, true); }
UnitMemory memory(const char* per_unit, const char* gpu_memory = nullptr, std::uint32_t units_per_gpu = 8) {
  return {sizes(per_unit), gpu_memory == nullptr ? TypedSizes{} : sizes(gpu_memory), units_per_gpu};
}

}  // namespace

TEST_CASE("Sizes by type are read, and written as they are read") {
  CHECK(format_typed_sizes(sizes("auto")) == "auto");
  CHECK(format_typed_sizes(sizes("1KiB")) == "1KiB");
  CHECK(format_typed_sizes(sizes("a100:1KiB,h100:auto,7B")) == "a100:1KiB,h100:auto,7B");
  for (const char* text : {"1023B", "1025B", "1536KiB", "10GiB", "3TiB"}) {
    CHECK(format_typed_sizes(sizes(text)) == text);
    CHECK(sizes(format_typed_sizes(sizes(text)).c_str()) == sizes(text));
  }
  CHECK(sizes("a100:1B,2B").find("A100")->size == Bytes{1});
  CHECK(sizes("a100:1B,2B").find("h100")->size == Bytes{2});
  CHECK(sizes("a100:1B").find("h100") == nullptr);
}

TEST_CASE("Only a single size without a type is common to all types") {
  CHECK(sizes("5B").common() == Bytes{5});
  CHECK_FALSE(sizes("auto").common());
  CHECK_FALSE(sizes("a100:5B").common());
  CHECK_FALSE(sizes("5B,a100:5B").common());
  CHECK_FALSE(TypedSizes{}.common());
}

TEST_CASE("A unit stands for the size of its type") {
  CHECK(memory("10B").of("") == Bytes{10});
  CHECK(memory("10B").of("a100") == Bytes{10});
  CHECK(memory("a100:10B,5B").of("a100") == Bytes{10});
  CHECK(memory("a100:10B,5B").of("h100") == Bytes{5});
  CHECK_FALSE(memory("a100:10B").of("h100"));
  CHECK_FALSE(UnitMemory(TypedSizes{}, TypedSizes{}, 8).of(""));
}

TEST_CASE("A unit without a type stands for the largest size") {
  CHECK(memory("a100:10B,h100:20B,5B").of("") == Bytes{20});
  CHECK(memory("a100:10B,auto", "h100:800B").of("") == Bytes{100});
  CHECK(memory("auto", "a100:80B,h100:160B").of("") == Bytes{20});
}

TEST_CASE("auto is the GPU's memory divided by its units, rounded up") {
  CHECK(memory("auto", "81B").of("a100") == Bytes{11});
  CHECK(memory("auto", "81B", 1).of("") == Bytes{81});
  CHECK(memory("auto", "a100:80B,160B").of("a100") == Bytes{10});
  CHECK(memory("auto", "a100:80B,160B").of("h100") == Bytes{20});
  CHECK(memory("h100:auto", "160B").of("h100") == Bytes{20});
  CHECK_FALSE(memory("auto", "a100:80B").of("h100"));
}

TEST_CASE("auto without the GPU's memory is a problem that names what to add") {
  CHECK(memory("auto").problem() == "SwapPerUnit=auto needs the memory of the GPUs: add GpuMemory=SIZE");
  CHECK(memory("10B,h100:auto", "a100:80B").problem() ==
        "SwapPerUnit=h100:auto needs the memory of the GPUs: add GpuMemory=h100:SIZE");
  CHECK(memory("auto", "a100:80B").problem().empty());
  CHECK(memory("10B").problem().empty());
}
