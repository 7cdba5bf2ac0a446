// SPDX-License-Identifier: Apache-2.0
#include "interposer/memory/stream_pool.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

namespace {

constexpr CUdeviceptr kPoolBase = 1ull << 40;
constexpr StreamId kOne{1};
constexpr StreamId kOther{2};

struct Switch final : Fence {
  bool passed() override {
    ++asked;
    return on;
  }
  bool on = false;
  unsigned asked = 0;
};

// One chunk, and one block that fills half of it.
struct PoolWorld {
  StreamPool pool;
  std::shared_ptr<Switch> fence = std::make_shared<Switch>();
  PoolWorld() { pool.add_chunk(kPoolBase, mebibytes(4), mebibytes(2)); }
};

}  // namespace

TEST_CASE("a stream reuses at once what it freed, and other streams when the GPU has passed the free",
          "[stream_pool]") {
  PoolWorld t;
  REQUIRE(t.pool.give(kPoolBase, kOne, t.fence));
  CHECK(t.pool.take(mebibytes(2), kOther) == kPoolBase + mebibytes(2).count);
  CHECK_FALSE(t.pool.take(mebibytes(2), kOther));
  SECTION("the same stream") { CHECK(t.pool.take(mebibytes(2), kOne) == kPoolBase); }
  SECTION("another, too early") {
    CHECK_FALSE(t.pool.settle());
    CHECK_FALSE(t.pool.take(mebibytes(2), kOther));
  }
  SECTION("another, later") {
    t.fence->on = true;
    CHECK(t.pool.settle());
    CHECK(t.pool.take(mebibytes(2), kOther) == kPoolBase);
  }
}

TEST_CASE("the rest of a block that was cut up belongs to the block's stream, too", "[stream_pool]") {
  PoolWorld t;
  REQUIRE(t.pool.give(kPoolBase, kOne, t.fence));
  REQUIRE(t.pool.take(mebibytes(2), kOther));  // uses the other half of the chunk
  CHECK(t.pool.take(kibibytes(512), kOne) == kPoolBase);
  CHECK(t.pool.take(kibibytes(512), kOne) == kPoolBase + kibibytes(512).count);
  CHECK_FALSE(t.pool.take(kibibytes(512), kOther));
  t.fence->on = true;
  CHECK(t.pool.settle());
  CHECK(t.pool.take(mebibytes(1), kOther) == kPoolBase + mebibytes(1).count);
}

TEST_CASE("a much larger block of the stream's own is cut up only if it must be", "[stream_pool]") {
  PoolWorld t;
  REQUIRE(t.pool.give(kPoolBase, kOne, t.fence));
  CHECK(t.pool.take({512}, kOne) == kPoolBase + mebibytes(2).count);
}

TEST_CASE("memory that no work uses any more is available to all streams", "[stream_pool]") {
  PoolWorld t;
  REQUIRE(t.pool.give(kPoolBase, {}, nullptr));
  CHECK(t.pool.take(mebibytes(4), kOther) == kPoolBase);
}

TEST_CASE("a block is freed once, at its base", "[stream_pool]") {
  PoolWorld t;
  CHECK_FALSE(t.pool.give(kPoolBase + 512, kOne, t.fence));
  CHECK(t.pool.give(kPoolBase, kOne, t.fence));
  CHECK_FALSE(t.pool.give(kPoolBase, kOne, t.fence));
  CHECK_FALSE(t.pool.find(kPoolBase));
}

TEST_CASE("only chunks that nothing uses leave", "[stream_pool]") {
  PoolWorld t;
  t.pool.add_chunk(kPoolBase + gibibytes(1).count, mebibytes(8), mebibytes(8));
  CHECK(t.pool.release({}).empty());
  REQUIRE(t.pool.give(kPoolBase, kOne, t.fence));
  CHECK(t.pool.release({}).empty());  // the block is freed, but the GPU may not have reached the free
  t.fence->on = true;
  CHECK(t.pool.settle());
  CHECK(t.pool.release(mebibytes(12)).empty());
  REQUIRE(t.pool.release(mebibytes(11)).size() == 1);
  CHECK(t.pool.reserved() == mebibytes(8));
  CHECK(t.pool.used() == mebibytes(8));
  CHECK(t.pool.reserved_high() == mebibytes(12));
  CHECK(t.pool.used_high() == mebibytes(10));
  t.pool.reset_used_high();
  t.pool.reset_reserved_high();
  CHECK(t.pool.reserved_high() == mebibytes(8));
  CHECK(t.pool.used_high() == mebibytes(8));
}

TEST_CASE("if the GPU has not passed a free, the later frees of its stream are not queried",
          "[stream_pool]") {
  PoolWorld t;
  std::vector<std::shared_ptr<Switch>> fences;
  REQUIRE(t.pool.give(kPoolBase, kOne, t.fence));
  for (int i = 0; i < 100; ++i) {
    const auto block = t.pool.take({512}, kOther);
    REQUIRE(block);
    fences.push_back(std::make_shared<Switch>());
    REQUIRE(t.pool.give(*block, kOne, fences.back()));
  }
  CHECK_FALSE(t.pool.settle());
  CHECK(t.fence->asked == 1);
  for (const auto& fence : fences) CHECK(fence->asked == 0);
}

TEST_CASE("chunks are roomy where the pool is large", "[stream_pool]") {
  StreamPool pool;
  CHECK(pool.next_chunk({1}, mebibytes(2)) == mebibytes(2));
  CHECK(pool.next_chunk(mebibytes(3), mebibytes(2)) == mebibytes(4));
  pool.add_chunk(kPoolBase, mebibytes(100), {512});
  CHECK(pool.next_chunk({1}, mebibytes(2)) == mebibytes(16));
  pool.add_chunk(2 * kPoolBase, gibibytes(1), {512});
  CHECK(pool.next_chunk({1}, mebibytes(2)) == mebibytes(32));
  CHECK(pool.next_chunk(mebibytes(33), mebibytes(2)) == mebibytes(34));
}
