// SPDX-License-Identifier: Apache-2.0
#include "interposer/oversize/launches_under_way.h"

#include <catch2/catch.hpp>

using namespace sharedgpu;

TEST_CASE("a handle is in use until the last launch that uses it has ended", "[launches_under_way]") {
  LaunchesUnderWay launches;
  const auto first = launches.begin({{1, mebibytes(2)}, {2, mebibytes(4)}});
  const auto second = launches.begin({{2, mebibytes(4)}});
  CHECK(launches.count() == 2);
  CHECK(launches.size() == mebibytes(6));
  CHECK(launches.uses(1));
  launches.end(first);
  CHECK_FALSE(launches.uses(1));
  CHECK(launches.uses(2));
  CHECK(launches.size() == mebibytes(4));
  launches.end(first);  // has no effect
  CHECK(launches.uses(2));
  launches.end(second);
  CHECK(launches.count() == 0);
  CHECK(launches.size() == Bytes{});
  CHECK_FALSE(launches.uses(2));
}
