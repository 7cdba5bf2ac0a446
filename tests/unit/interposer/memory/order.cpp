// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/order.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

Handle handle_used(std::uint64_t last_used, bool mapped, Bytes size = mebibytes(2)) {
  Handle handle;
  handle.address = last_used << 32;
  handle.size = size;
  handle.mapped = handle.accessible = mapped;
  handle.last_used = last_used;
  return handle;
}

}  // namespace

TEST_CASE("the least recently used leaves first", "[order]") {
  Handle old = handle_used(1, true);
  Handle middle = handle_used(2, true);
  Handle young = handle_used(3, true);
  Order order;
  CHECK(order.first_to_leave() == nullptr);
  for (Handle* handle : {&middle, &young, &old}) order.insert(*handle);
  CHECK(order.first_to_leave() == &old);
  order.remove(old);
  CHECK(order.first_to_leave() == &middle);
  CHECK(order.all_usable());
}

TEST_CASE("equally recent handles leave by address", "[order]") {
  Handle low = handle_used(1, true);
  Handle high = handle_used(1, true);
  high.address += 4096;
  Order order;
  order.insert(high);
  order.insert(low);
  CHECK(order.first_to_leave() == &low);
}

TEST_CASE("the most recently used that fits comes back first", "[order]") {
  Handle old = handle_used(1, false, mebibytes(2));
  Handle young = handle_used(2, false, mebibytes(64));
  Order order;
  order.insert(old);
  order.insert(young);
  CHECK_FALSE(order.all_usable());
  CHECK(order.first_to_return(mebibytes(64)) == &young);
  CHECK(order.first_to_return(mebibytes(63)) == &old);
  CHECK(order.first_to_return(mebibytes(1)) == nullptr);
  CHECK(order.first_to_leave() == nullptr);
}

TEST_CASE("a partly restored handle can be evicted, or restored without more room", "[order]") {
  Handle half = handle_used(1, true, mebibytes(64));
  half.contents = Handle::Contents::in_room;
  Order order;
  order.insert(half);
  CHECK(order.first_to_leave() == &half);
  CHECK(order.first_to_return({}) == &half);
  CHECK_FALSE(order.all_usable());
  order.remove(half);
  CHECK(order.all_usable());
}

TEST_CASE("the clean copy that goes first is that of the handle that would leave last", "[order]") {
  Handle old = handle_used(1, true, mebibytes(64));
  Handle young = handle_used(2, true, mebibytes(64));
  Handle evicted = handle_used(3, false, mebibytes(64));
  for (Handle* handle : {&old, &young, &evicted}) handle->host = {{nullptr, mebibytes(64)}};
  evicted.contents = Handle::Contents::in_room;
  Order order;
  CHECK(order.last_copy() == nullptr);
  for (Handle* handle : {&evicted, &young, &old}) order.insert(*handle);
  CHECK(order.last_copy() == &young);
  order.remove(young);
  CHECK(order.last_copy() == &old);
  order.remove(old);
  CHECK(order.last_copy() == nullptr);
}

TEST_CASE("a range is cut into handles without a small rest", "[order]") {
  Range range{CUdeviceptr{1} << 40, mebibytes(64 * 3 + 2), false, nullptr, {}};
  const std::vector<Handle> handles = cut_into_handles(range, mebibytes(64));
  REQUIRE(handles.size() == 3);
  CHECK(handles[0].address == range.base);
  CHECK(handles[1].address == range.base + (64 << 20));
  CHECK(handles[0].size == mebibytes(64));
  CHECK(handles[2].size == mebibytes(66));

  range.size = mebibytes(2);
  REQUIRE(cut_into_handles(range, mebibytes(64)).size() == 1);
  CHECK(cut_into_handles(range, mebibytes(64))[0].size == mebibytes(2));
}
