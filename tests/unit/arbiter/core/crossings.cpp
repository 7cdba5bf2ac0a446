// SPDX-License-Identifier: Apache-2.0
// Messages that cross: a session acts before it has read the core's last message.
#include <catch2/catch.hpp>

#include "bench.h"

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

// Session 1 was ordered twice to restore up to 60 MiB, has freed 20 MiB of its memory and grown by
// 10 MiB, and has then sent a second Ready. It may not have read the second Restore yet. Its tenant 1 has the
// turn, and also has session 3, of 1 MiB. Tenant 2 has 39 of its 75 MiB on the GPU.
Bench told_twice() {
  Bench b;
  b.settle_in(1, 1, 60);
  b.settle_in(3, 1, 1);
  b.queue_up(2, 2, 75);
  b.pass(10s);
  b.release(1, 60, true);
  b.release(3, 1, true);
  b.tell(1, 60, 24);
  b.ready(2, 75);
  b.pass(10s);
  b.release(2, 75, false);
  b.tell(2, 75, 39);
  b.ready(1, 60);
  b.tell(1, 40, 40);
  b.grow(1, 50, 40);
  b.tell(1, 50, 50);
  REQUIRE(b.sent<Restore>(1)->allowed == mebibytes(60));
  b.ready(1, 50);
  b.ready(3, 1);
  REQUIRE(b.open(1));
  return b;
}

TEST_CASE("Memory that a session may fill by a Restore on its way is promised") {
  Bench b = told_twice();
  SECTION("so others have to evict for growth") {
    b.grow(3, 11, 1);
    CHECK_FALSE(b.sent<Verdict>(3));
    REQUIRE(b.sent<Evict>(2));
    CHECK(b.sent<Evict>(2)->allowed == mebibytes(29));
    b.tell(2, 75, 29);
    CHECK(b.granted(3));
  }
  SECTION("and a newcomer does not fit in its place") {
    b.come(4, 4);
    b.attach(4);
    b.grow(4, 40, 0);
    CHECK_FALSE(b.open(4));
    CHECK_FALSE(b.sent<Verdict>(4));
  }
  SECTION("but one that fits beside it does") {
    b.come(4, 4);
    b.attach(4);
    b.grow(4, 39, 0);
    CHECK(b.open(4));
    b.tell(2, 75, 0);
    CHECK(b.granted(4));
  }
  SECTION("until it settles memory: nothing arrives meanwhile") {
    b.settle(1, 50, 10);
    CHECK(b.granted(1));
    CHECK_FALSE(b.sent<Evict>(2));
    b.grow(3, 11, 1);
    CHECK(b.granted(3));
  }
  SECTION("until it has drained") {
    b.want(2);
    b.pass(10s);
    REQUIRE(b.sent<Revoke>(1));
    REQUIRE_FALSE(b.sent<Restore>(2));
    b.release(1, 50, true);  // session 3 has not drained yet
    REQUIRE(b.sent<Restore>(2));
    CHECK(b.sent<Restore>(2)->allowed == mebibytes(49));
  }
}

TEST_CASE("A Restore to more than a session was ready with is promised, too") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass(10s);
  b.release(1, 60, false);
  b.tell(1, 60, 39);
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(60));
  b.tell(2, 50, 20);
  b.ready(2, 50);
  REQUIRE(b.open(2));
  b.come(4, 4);
  b.attach(4);
  b.grow(4, 10, 0);
  CHECK_FALSE(b.sent<Verdict>(4));
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(30));
}

TEST_CASE("A session may fill memory twice if it was sent two Restores") {
  Bench b;
  b.settle_in(1, 1, 60);
  b.queue_up(2, 2, 60);
  b.pass(10s);
  b.release(1, 60, false);
  b.tell(1, 60, 40);
  REQUIRE(b.sent<Restore>(2)->allowed == mebibytes(60));
  b.tell(2, 60, 60);
  REQUIRE(b.sent<Restore>(2));
  CHECK(b.sent<Restore>(2)->allowed == mebibytes(60));
  b.ready(2, 60);  // answers the first Restore
  REQUIRE(b.open(2));
  b.tell(2, 40, 40);
  b.come(4, 4);
  b.attach(4);
  b.grow(4, 10, 0);
  CHECK_FALSE(b.sent<Verdict>(4));
  REQUIRE(b.sent<Evict>(1));
  CHECK(b.sent<Evict>(1)->allowed == mebibytes(30));
}

}  // namespace
}  // namespace sharedgpu
