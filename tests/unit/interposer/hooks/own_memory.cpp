// SPDX-License-Identifier: Apache-2.0
#include "interposer/hooks/own_memory.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;
using hooks::OwnMemory;

namespace {

constexpr CUdeviceptr kBase = 1ull << 40;
constexpr Bytes kSize = mebibytes(20);

}  // namespace

TEST_CASE("a handle that was never mapped goes with its last reference", "[own_memory]") {
  OwnMemory own;
  own.created(7, kSize);
  CHECK(own.released(7) == kSize);
  CHECK(own.released(7) == Bytes{});
}

TEST_CASE("memory lives as long as a handle or a mapping refers to it", "[own_memory]") {
  OwnMemory own;
  own.created(7, kSize);
  own.mapped(kBase, kSize, 7);
  own.mapped(2 * kBase, kSize, 7);
  SECTION("the handle first") {
    CHECK(own.released(7) == Bytes{});
    CHECK(own.unmapped(kBase, kSize) == Bytes{});
    CHECK(own.unmapped(2 * kBase, kSize) == kSize);
  }
  SECTION("the mappings first") {
    CHECK(own.unmapped(kBase, kSize) == Bytes{});
    CHECK(own.unmapped(2 * kBase, kSize) == Bytes{});
    CHECK(own.released(7) == kSize);
  }
  CHECK(own.unmapped(kBase, kSize) == Bytes{});
}

TEST_CASE("the driver uses a handle's number again while the memory still lives", "[own_memory]") {
  OwnMemory own;
  own.created(7, kSize);
  own.mapped(kBase, kSize, 7);
  CHECK(own.released(7) == Bytes{});
  own.created(7, mebibytes(2));
  CHECK(own.unmapped(kBase, kSize) == kSize);
  CHECK(own.released(7) == mebibytes(2));
}

TEST_CASE("a handle that is found again by its address is a reference", "[own_memory]") {
  OwnMemory own;
  own.created(7, kSize);
  own.mapped(kBase, kSize, 7);
  const OwnMemory::Handle found = GENERATE(7, 8);  // the driver may return the same handle or another handle
  own.retained(found, kBase + 12345);
  CHECK(own.released(7) == Bytes{});
  CHECK(own.unmapped(kBase, kSize) == Bytes{});
  CHECK(own.released(found) == kSize);
}

TEST_CASE("one call takes many mappings away, and only those in its range", "[own_memory]") {
  OwnMemory own;
  for (OwnMemory::Handle handle = 1; handle <= 4; ++handle) {
    own.created(handle, kSize);
    own.mapped(kBase + handle * kSize.count, kSize, handle);
    own.released(handle);
  }
  CHECK(own.unmapped(kBase + 2 * kSize.count, {2 * kSize.count}) == Bytes{2 * kSize.count});
  CHECK(own.unmapped(kBase, {8 * kSize.count}) == Bytes{2 * kSize.count});
}

TEST_CASE("imported memory and memory of other devices is not counted", "[own_memory]") {
  OwnMemory own;
  own.mapped(kBase, kSize, 7);  // the memory is imported, or is on another device
  own.retained(8, kBase);
  CHECK(own.unmapped(kBase, kSize) == Bytes{});
  CHECK(own.released(7) == Bytes{});
  CHECK(own.released(8) == Bytes{});
}
