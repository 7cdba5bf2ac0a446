// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/packing.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {
constexpr CUdeviceptr kBase = 1ull << 40;
}

TEST_CASE("blocks are aligned and follow one another", "[packing]") {
  Packing packing;
  packing.add_region(kBase, kibibytes(4));
  CHECK(packing.take({1}) == kBase);
  CHECK(packing.take({513}) == kBase + 512);
  CHECK(packing.take({512}) == kBase + 1536);
  CHECK(packing.total() == kibibytes(4));
}

TEST_CASE("a full region has no place", "[packing]") {
  Packing packing;
  CHECK(packing.take({1}) == std::nullopt);
  packing.add_region(kBase, kibibytes(4));
  CHECK(packing.take(kibibytes(5)) == std::nullopt);
  CHECK(packing.take(kibibytes(4)) == kBase);
  CHECK(packing.take({1}) == std::nullopt);
  CHECK(packing.take({~0ull}) == std::nullopt);
}

TEST_CASE("the smallest place that fits is taken", "[packing]") {
  Packing packing;
  packing.add_region(kBase, kibibytes(64));
  packing.add_region(kBase + (1 << 20), kibibytes(8));
  CHECK(packing.take(kibibytes(8)) == kBase + (1 << 20));
  CHECK(packing.take(kibibytes(8)) == kBase);
}

TEST_CASE("freed neighbours join", "[packing]") {
  Packing packing;
  packing.add_region(kBase, kibibytes(4));
  const CUdeviceptr first = *packing.take(kibibytes(1));
  const CUdeviceptr second = *packing.take(kibibytes(1));
  const CUdeviceptr third = *packing.take(kibibytes(2));
  CHECK(packing.give(first) == kBase);
  CHECK(packing.give(third) == kBase);
  CHECK_FALSE(packing.is_empty(kBase));
  CHECK(packing.give(second) == kBase);
  CHECK(packing.is_empty(kBase));
  CHECK(packing.take(kibibytes(4)) == kBase);
}

TEST_CASE("regions side by side are not joined", "[packing]") {
  Packing packing;
  packing.add_region(kBase, kibibytes(4));
  packing.add_region(kBase + 4096, kibibytes(4));
  CHECK(packing.take(kibibytes(8)) == std::nullopt);
  const CUdeviceptr low = *packing.take(kibibytes(4));
  const CUdeviceptr high = *packing.take(kibibytes(4));
  CHECK(packing.give(high) == kBase + 4096);
  CHECK(packing.is_empty(kBase + 4096));
  CHECK_FALSE(packing.is_empty(kBase));
  CHECK(packing.give(low) == kBase);
  CHECK(packing.take(kibibytes(8)) == std::nullopt);
}

TEST_CASE("a region that goes takes its places along", "[packing]") {
  Packing packing;
  packing.add_region(kBase, kibibytes(4));
  packing.remove_region(kBase);
  CHECK(packing.total() == Bytes{});
  CHECK(packing.take({1}) == std::nullopt);
}
