// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/complaint_limits.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

constexpr uid_t kComplainer = 7;

// Adds a line `times` times, and returns how often it was logged.
unsigned logged(ComplaintLimits& limits, unsigned times, Nanoseconds now, uid_t user = kComplainer,
                Cause cause = Cause::dropped) {
  unsigned count = 0;
  for (unsigned i = 0; i < times; ++i) count += limits.add(user, cause, "line", now) ? 1 : 0;
  return count;
}

TEST_CASE("For each cause, ten lines about a user are logged at once, and then one in ten seconds") {
  ComplaintLimits limits;
  CHECK(logged(limits, 100, 1000s) == 10);
  CHECK(logged(limits, 100, 1000s, kComplainer, Cause::denied) == 10);
  CHECK(logged(limits, 100, 1000s, kComplainer + 1) == 10);
  CHECK(logged(limits, 100, 1009s) == 0);
  CHECK(logged(limits, 100, 1010s) == 1);
  unsigned later = 0;
  for (int second = 1011; second <= 1110; ++second)
    later += logged(limits, 1000, std::chrono::seconds(second));
  CHECK(later >= 9);
  CHECK(later <= 10);
}

TEST_CASE("Lines about root are all logged") {
  ComplaintLimits limits;
  CHECK(logged(limits, 1000, 1000s, 0) == 1000);
  CHECK_FALSE(limits.has_left_out());
}

TEST_CASE("The next line states the number of omitted lines") {
  ComplaintLimits limits;
  logged(limits, 13, 1000s);
  CHECK(limits.add(kComplainer, Cause::dropped, "last", 1010s) == "last (3 more like this left out)");
  CHECK_FALSE(limits.has_left_out());
  CHECK(limits.add(kComplainer, Cause::dropped, "another", 1020s) == "another");
}

TEST_CASE("The number of omitted lines is logged after a while even if no line follows") {
  ComplaintLimits limits;
  logged(limits, 10, 1000s);
  for (const char* line : {"first", "second", "third"}) limits.add(kComplainer, Cause::dropped, line, 1000s);
  CHECK(limits.take_left_out(1009s).empty());
  CHECK(limits.has_left_out());
  CHECK(limits.take_left_out(1010s) == std::vector<std::string>{"third (2 more like this left out)"});
  CHECK_FALSE(limits.has_left_out());
  CHECK(limits.take_left_out(1020s).empty());
}

TEST_CASE("A line that counts omitted ones counts as a logged line") {
  ComplaintLimits limits;
  logged(limits, 12, 1000s);
  REQUIRE(limits.take_left_out(1010s).size() == 1);
  CHECK(logged(limits, 5, 1010s) == 0);
}

}  // namespace
}  // namespace sharedgpu
