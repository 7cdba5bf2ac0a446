// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/token_bucket.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

unsigned taken(TokenBucket& bucket, Nanoseconds now) {
  unsigned count = 0;
  while (bucket.take(now)) ++count;
  return count;
}

TEST_CASE("A bucket allows a number at once, and then a number per second") {
  TokenBucket bucket(10, 2);
  CHECK(taken(bucket, 1000s) == 10);
  CHECK(taken(bucket, 1000s) == 0);
  CHECK(taken(bucket, 1000s + 400ms) == 0);
  CHECK(taken(bucket, 1000s + 600ms) == 1);
  CHECK(taken(bucket, 1002s) == 3);  // 2.8 tokens in 1.4 s, and 0.2 that were left
}

TEST_CASE("A bucket is full when all earlier use has been regained") {
  TokenBucket bucket(10, 2);
  CHECK(bucket.is_full(1000s));
  CHECK(bucket.take(1000s));
  CHECK_FALSE(bucket.is_full(1000s + 400ms));
  CHECK(bucket.is_full(1000s + 600ms));
}

TEST_CASE("A use may exceed the content of the bucket, and the excess is owed") {
  TokenBucket bucket(10, 2);
  CHECK(bucket.charge(9, 1000s) == 0s);
  CHECK(bucket.charge(2, 1000s) == 500ms);
  CHECK(bucket.charge(1, 1000s) == 1s);
  CHECK_FALSE(bucket.take(1001s));
  CHECK(bucket.charge(1, 1002s) == 0s);
}

TEST_CASE("A user that has not come for long may come as often as at first, and no more often") {
  TokenBucket bucket(10, 2);
  CHECK(taken(bucket, 1000s) == 10);
  CHECK(taken(bucket, 5000s) == 10);
}

TEST_CASE("Each key has a bucket, and full buckets are not kept") {
  TokenBuckets<int> buckets(2, 1);
  for (int key = 0; key < 1000; ++key) CHECK(buckets.take(key, 1000s));
  CHECK(buckets.take(1, 1000s));
  CHECK_FALSE(buckets.take(1, 1000s));
  for (int key = 1000; key < 1100; ++key) CHECK(buckets.take(key, 2000s));
  CHECK(buckets.size() < 200);
}

}  // namespace
}  // namespace sharedgpu
