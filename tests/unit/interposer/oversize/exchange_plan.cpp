// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/exchange_plan.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

using Handles = std::vector<std::uint64_t>;

// An order in which the program needs the handles 1 to 20 again and again. The last need was for `present`.
NeedOrder cyclic(std::uint64_t present) {
  NeedOrder order;
  for (std::uint64_t i = 0; i < 60 + present; ++i) order.note(1 + i % 20);
  return order;
}

constexpr Bytes kSize = mebibytes(64);

std::vector<Candidate> candidates(const Handles& on_gpu, const Handles& away, Bytes size = kSize) {
  std::vector<Candidate> all;
  for (const std::uint64_t handle : on_gpu) all.push_back({handle, size, true});
  for (const std::uint64_t handle : away) all.push_back({handle, size, false});
  return all;
}

}  // namespace

TEST_CASE("a needed handle comes in for the handle that is needed last", "[exchange_plan]") {
  const Plan made = plan(cyclic(6), candidates({3, 4, 5, 7, 8}, {1, 2, 6}), Handles{6}, {}, {});
  CHECK(made.in == Handles{6});
  CHECK(made.out == Handles{5});
}

TEST_CASE("nothing leaves if there is room", "[exchange_plan]") {
  const Plan made = plan(cyclic(6), candidates({3, 4, 5}, {6}), Handles{6}, kSize, {});
  CHECK(made.in == Handles{6});
  CHECK(made.out.empty());
}

TEST_CASE("without an order, the least recently used handle leaves and nothing comes in early",
          "[exchange_plan]") {
  NeedOrder order;
  for (std::uint64_t handle = 1; handle <= 6; ++handle) order.note(handle);
  const Plan made = plan(order, candidates({3, 4, 5}, {1, 2, 6}), Handles{6}, {}, gibibytes(1));
  CHECK(made.in == Handles{6});
  CHECK(made.out == Handles{3});
  CHECK(plan(order, candidates({3}, {1, 2}), {}, gibibytes(1), gibibytes(1)).in.empty());
}

TEST_CASE("a handle that is never needed leaves first", "[exchange_plan]") {
  CHECK(plan(cyclic(6), candidates({3, 5, 30}, {6}), Handles{6}, {}, {}).out == Handles{30});
  // If several handles are never needed again, the handle that was needed longest ago leaves first.
  NeedOrder order;
  order.note(32);
  order.note(31);
  for (int i = 0; i < 60; ++i) order.note(1 + static_cast<std::uint64_t>(i) % 20);
  CHECK(plan(order, candidates({20, 31, 32}, {1}), Handles{1}, {}, {}).out == Handles{32});
}

TEST_CASE("no needed handle leaves for another one, and what the window cannot hold stays away",
          "[exchange_plan]") {
  const Plan made = plan(cyclic(6), candidates({5, 6}, {7, 8, 9}), Handles{6, 9, 7, 8}, kSize, {});
  CHECK(made.in == Handles{9, 7});
  CHECK(made.out == Handles{5});
}

TEST_CASE("unknown and repeated needed handles change nothing", "[exchange_plan]") {
  const Plan made = plan(cyclic(6), candidates({5}, {6}), Handles{77, 6, 6}, {}, {});
  CHECK(made.in == Handles{6});
  CHECK(made.out == Handles{5});
  CHECK(plan(cyclic(6), {}, Handles{6}, {}, {}).in.empty());
}

TEST_CASE("coming needs come in early for handles that are needed later", "[exchange_plan]") {
  const Handles on_gpu = {1, 2, 3, 4, 5, 11, 12};
  const Handles away = {6, 7, 8, 9, 10, 13};
  const Plan made = plan(cyclic(6), candidates(on_gpu, away), Handles{6}, {}, mebibytes(64 * 3));
  CHECK(made.in == Handles{6, 7, 8});
  CHECK(made.out == Handles{5, 4, 3});
  // Only 11 and 12 are on the GPU, and both are needed before 13.
  CHECK(plan(cyclic(10), candidates({11, 12}, {13, 14}), {}, {}, gibibytes(1)).in.empty());
  // Handles that are needed now come in even if they exceed the limit of early entries.
  CHECK(plan(cyclic(6), candidates(on_gpu, away), Handles{6, 7}, {}, kSize).in == Handles{6, 7});
}

TEST_CASE("nothing comes in early in place of a handle that is needed only little later", "[exchange_plan]") {
  // After handle 4, the order needs handle 9 in 5 needs and handle 20 in 16. It needs handle 8 in 4 needs and
  // handle 1 in 17.
  CHECK(plan(cyclic(4), candidates({20}, {9}), {}, {}, gibibytes(1)).in.empty());
  CHECK(plan(cyclic(4), candidates({1}, {8}), {}, {}, gibibytes(1)).in == Handles{8});
}

TEST_CASE("what will not be needed does not come in early", "[exchange_plan]") {
  CHECK(plan(cyclic(6), candidates({7}, {30, 31}), {}, gibibytes(1), gibibytes(1)).in.empty());
}

TEST_CASE("no handle leaves unnecessarily", "[exchange_plan]") {
  // Handle 5 is needed last, but its 2 MiB are too few. Handle 4 alone is large enough, so 5 stays.
  const std::vector<Candidate> all = {{5, mebibytes(2), true},
                                      {4, mebibytes(128), true},
                                      {3, mebibytes(128), true},
                                      {6, mebibytes(100), false}};
  const Plan made = plan(cyclic(6), all, Handles{6}, {}, {});
  CHECK(made.in == Handles{6});
  CHECK(made.out == Handles{4});
  // Handle 12 of 30 MiB finds 28 MiB free, and handle 5, which is needed not much later, does not leave for
  // it.
  std::vector<Candidate> more = all;
  more.push_back({12, mebibytes(30), false});
  CHECK(plan(cyclic(6), more, Handles{6}, {}, gibibytes(1)).in == Handles{6});
  more.back().size = mebibytes(28);
  CHECK(plan(cyclic(6), more, Handles{6}, {}, gibibytes(1)).in == Handles{6, 12});
}

TEST_CASE("a handle stays if it no longer needs to leave", "[exchange_plan]") {
  // Handle 5 would leave for 6. Then 4 leaves for 7, which also makes room for 6, so 5 stays.
  const std::vector<Candidate> all = {{5, mebibytes(4), true},
                                      {4, mebibytes(104), true},
                                      {6, mebibytes(2), false},
                                      {7, mebibytes(100), false}};
  const Plan made = plan(cyclic(6), all, Handles{6}, {}, gibibytes(1));
  CHECK(made.in == Handles{6, 7});
  CHECK(made.out == Handles{4});
}
