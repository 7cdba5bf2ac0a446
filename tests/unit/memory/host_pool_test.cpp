// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/host_pool.h"

#include <catch2/catch.hpp>

#include "tests/unit/memory/support/fixtures.h"

using namespace sharedgpu;
using namespace sharedgpu::test;

namespace {

constexpr Bytes kGranule = kibibytes(4);
constexpr Bytes kSlab{64 * kGranule.count};

Bytes size_of(const HostRoom& room) {
  Bytes total;
  for (const HostPiece& piece : room) total += piece.size;
  return total;
}

struct Pool {
  FakeDevice device;
  FakeBudget budget;
  HostPool pool{device, budget, kGranule};
  DeviceScope scope{device};
};

}  // namespace

TEST_CASE("room comes from whole pinned slabs", "[pool]") {
  Pool t;
  const std::optional<HostRoom> room = t.pool.take(kibibytes(12));
  REQUIRE(room);
  REQUIRE(room->size() == 1);
  CHECK(size_of(*room) == kibibytes(12));
  std::memset(room->front().data, 1, kibibytes(12).count);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == kibibytes(12));
  CHECK(t.device.pinned() == kSlab);
  t.pool.give(*room);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == Bytes{});
}

TEST_CASE("room larger than a slab comes in pieces", "[pool]") {
  Pool t;
  const Bytes size = kSlab + kSlab + kGranule;
  const std::optional<HostRoom> room = t.pool.take(size);
  REQUIRE(room);
  CHECK(room->size() == 3);
  CHECK(size_of(*room) == size);
  CHECK(t.pool.held().count == 3 * kSlab.count);
}

TEST_CASE("holes are used", "[pool]") {
  Pool t;
  std::vector<HostRoom> rooms;
  for (int i = 0; i < 64; ++i) rooms.push_back(*t.pool.take(kGranule));
  for (int i = 0; i < 64; i += 2) t.pool.give(rooms[i]);
  const std::optional<HostRoom> scattered = t.pool.take({32 * kGranule.count});
  REQUIRE(scattered);
  CHECK(scattered->size() == 32);
  CHECK(t.pool.held() == kSlab);
  CHECK(t.pool.used() == kSlab);
}

TEST_CASE("the budget is never passed", "[pool]") {
  Pool t;
  SECTION("no room") {
    t.budget.left = kGranule - Bytes{1};
    CHECK_FALSE(t.pool.take(kGranule));
    CHECK(t.pool.held() == Bytes{});
  }
  SECTION("less room than a slab: just what is needed") {
    t.budget.left = kibibytes(12);
    CHECK(t.pool.take(kibibytes(8)));
    CHECK(t.pool.held() == kibibytes(8));
    CHECK(t.device.pinned() == kibibytes(8));
  }
  SECTION("what is held already is no growth") {
    REQUIRE(t.pool.take(kGranule));
    t.budget.left = {};
    CHECK(t.pool.take(kGranule));
    CHECK_FALSE(t.pool.take(kSlab));
    CHECK(t.pool.used() == kibibytes(8));
  }
}

TEST_CASE("memory that cannot be pinned is not used", "[pool]") {
  Pool t;
  t.device.fail_call(1, CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_FALSE(t.pool.take(kGranule));
  CHECK(t.pool.held() == Bytes{});
  CHECK(t.pool.take(kGranule));
}

TEST_CASE("free slabs go back, beyond what is to be kept", "[pool]") {
  Pool t;
  const HostRoom first = *t.pool.take(kSlab);
  const HostRoom second = *t.pool.take(kSlab);
  const HostRoom third = *t.pool.take(kSlab);
  SECTION("none is free") { t.pool.trim({}); }
  t.pool.give(first);
  t.pool.give(second);
  SECTION("all free ones") {
    t.pool.trim({});
    CHECK(t.pool.held() == kSlab);
    CHECK(t.device.pinned() == kSlab);
  }
  SECTION("some are kept") {
    t.pool.trim(kSlab + kGranule);
    CHECK(t.pool.held() == kSlab + kSlab);
  }
  SECTION("a slab that cannot be unpinned stays of use") {
    t.device.fail_call(1);
    t.pool.trim({});
    CHECK(t.pool.held().count == 3 * kSlab.count);
    REQUIRE(t.pool.take(kSlab));
    CHECK(t.pool.held().count == 3 * kSlab.count);
  }
  CHECK(t.pool.used() >= kSlab);
  CHECK(t.device.misuse().empty());
}
