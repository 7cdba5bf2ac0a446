// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/need_order.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

constexpr auto kNever = NeedOrder::kNever;

void note_range(NeedOrder& order, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t handle = first; handle <= last; ++handle) order.note(handle);
}

// Returns an order with three cycles of the needs 1 to `count`, followed by the needs 1 to `present`.
NeedOrder cyclic(std::uint64_t count, std::uint64_t present) {
  NeedOrder order;
  for (int i = 0; i < 3; ++i) note_range(order, 1, count);
  note_range(order, 1, present);
  return order;
}

}  // namespace

TEST_CASE("before an order is learned, the least recently used handle is needed last", "[need_order]") {
  NeedOrder order;
  CHECK(order.next(1) == kNever);
  CHECK(order.since(1) == kNever);
  note_range(order, 1, 3);
  CHECK_FALSE(order.learned());
  CHECK(order.since(3) == 0);
  CHECK(order.since(1) == 2);
  CHECK(order.next(1) > order.next(2));
  CHECK(order.next(2) > order.next(3));
  CHECK(order.next(1) < kNever);
  CHECK(order.next(4) == kNever);
}

TEST_CASE("repeated needs of one handle are one need", "[need_order]") {
  NeedOrder order;
  for (int i = 0; i < 5; ++i) order.note(1);
  for (int i = 0; i < 5; ++i) order.note(2);
  CHECK(order.since(1) == 1);
}

TEST_CASE("a cycle is learned, and predicts distances", "[need_order]") {
  const NeedOrder order = cyclic(20, 5);
  REQUIRE(order.learned());
  CHECK(order.next(6) == 1);
  CHECK(order.next(20) == 15);
  CHECK(order.next(1) == 16);
  CHECK(order.next(5) == 20);
  CHECK(order.next(21) == kNever);
}

TEST_CASE("a single need outside the order does not disturb it", "[need_order]") {
  NeedOrder order = cyclic(20, 5);
  order.note(99);
  REQUIRE(order.learned());
  CHECK(order.next(6) == 1);
  order.note(6);
  CHECK(order.next(7) == 1);
  // Need 98 replaces need 7, and the order continues after it.
  order.note(98);
  order.note(8);
  CHECK(order.next(9) == 1);
  // The program skips the needs 9 and 10, and the order continues.
  order.note(11);
  CHECK(order.next(12) == 1);
}

TEST_CASE("a need that occurs elsewhere in the order does not lead away from it", "[need_order]") {
  NeedOrder order = cyclic(40, 5);
  order.note(30);
  CHECK(order.next(6) == 1);
  order.note(6);
  CHECK(order.next(7) == 1);
}

TEST_CASE("a need that the last cycle has left out is predicted by the cycle before", "[need_order]") {
  NeedOrder order = cyclic(20, 20);
  note_range(order, 1, 9);
  note_range(order, 11, 20);
  note_range(order, 1, 5);
  CHECK(order.next(10) == 5);
  // Two cycles without the need are a new order.
  note_range(order, 6, 9);
  note_range(order, 11, 20);
  note_range(order, 1, 5);
  CHECK(order.next(10) == kNever);
}

TEST_CASE("needs that overtake each other stay predicted", "[need_order]") {
  NeedOrder order = cyclic(40, 20);
  for (std::uint64_t handle = 21; handle <= 39; handle += 2) {
    order.note(handle + 1);
    order.note(handle);
  }
  REQUIRE(order.learned());
  CHECK(order.next(1) <= 2);
}

TEST_CASE("another program is recognized by a few of its needs", "[need_order]") {
  NeedOrder order;
  for (int i = 0; i < 2; ++i) {
    note_range(order, 1, 20);
    note_range(order, 1, 20);
    note_range(order, 101, 120);
  }
  note_range(order, 1, 20);
  // Either sequence may be the next.
  note_range(order, 101, 102);
  REQUIRE(order.learned());
  CHECK(order.next(103) == 1);
  CHECK(order.next(1) == 19);
}

TEST_CASE("the longest match decides between places where a handle was needed", "[need_order]") {
  NeedOrder order;
  for (int i = 0; i < 3; ++i) {
    note_range(order, 1, 10);
    order.note(50);
    note_range(order, 20, 30);
    order.note(50);
    note_range(order, 40, 45);
  }
  note_range(order, 1, 10);
  order.note(50);
  CHECK(order.next(20) == 1);
  note_range(order, 20, 30);
  order.note(50);
  CHECK(order.next(40) == 1);
}

TEST_CASE("a new program is not predicted by the old one", "[need_order]") {
  NeedOrder order = cyclic(20, 20);
  note_range(order, 101, 120);
  CHECK_FALSE(order.learned());
  CHECK(order.next(1) > order.next(120));
  note_range(order, 101, 112);
  CHECK(order.learned());
  CHECK(order.next(113) == 1);
  CHECK(order.next(1) == kNever);
}

TEST_CASE("the oldest needs are forgotten", "[need_order]") {
  NeedOrder order;
  order.note(1);
  for (std::size_t i = 0; i < NeedOrder::kMostNeeds; ++i) order.note(10 + i % 2);
  CHECK(order.since(1) == kNever);
  CHECK(order.since(10) == 1);
  CHECK(order.learned());
  // A cycle that is longer than the log is never learned.
  NeedOrder endless;
  for (int i = 0; i < 2; ++i) note_range(endless, 1, NeedOrder::kMostNeeds + 1);
  CHECK_FALSE(endless.learned());
  CHECK(endless.next(1) == kNever);
  CHECK(endless.next(2) == NeedOrder::kMostNeeds);
}
