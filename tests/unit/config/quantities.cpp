// SPDX-License-Identifier: Apache-2.0
#include "config/quantities.h"

#include <catch2/catch.hpp>

namespace sharedgpu {
namespace {

using namespace std::chrono_literals;

TEST_CASE("Sizes") {
  CHECK(parse_size("4096B") == Bytes{4096});
  CHECK(parse_size("0") == Bytes{});
  CHECK(parse_size("512MiB") == mebibytes(512));
  CHECK(parse_size("24GiB") == gibibytes(24));
  CHECK(parse_size("24 G") == gibibytes(24));
  CHECK(parse_size("24g") == gibibytes(24));
  CHECK(parse_size("1.5GB") == mebibytes(1536));
  CHECK(parse_size("2T") == gibibytes(2048));
  for (const char* bad : {"", " ", "-1", "G", "1.5.2G", "12 parsecs", "1e5", "0x10", "1GiBB", "99999999T",
                          "nan", "inf", "24GiB ", "+1", "4096", "8"})
    CHECK_FALSE(parse_size(bad));
}

TEST_CASE("Times") {
  CHECK(parse_time("500ms") == 500ms);
  CHECK(parse_time("10s") == 10s);
  CHECK(parse_time("0") == 0s);
  CHECK(parse_time("2m") == 2min);
  CHECK(parse_time("0.5h") == 30min);
  CHECK(parse_time("100us") == 100us);
  for (const char* bad : {"", "s", "12 parsecs", "-1s", "1s2", "999999999h", "10"})
    CHECK_FALSE(parse_time(bad));
}

TEST_CASE("Amounts are sizes or percentages") {
  CHECK(parse_amount("5%")->of(Bytes{1000}) == Bytes{50});
  CHECK(parse_amount("12.5 %")->of(Bytes{1000}) == Bytes{125});
  CHECK(parse_amount("24GiB")->of(Bytes{1000}) == gibibytes(24));
  CHECK(parse_amount("0%")->of(Bytes{1000}) == Bytes{});
  for (const char* bad : {"", "%", "101%", "-1%", "5%%"}) CHECK_FALSE(parse_amount(bad));
}

TEST_CASE("Sizes for people") {
  CHECK(format_size(Bytes{0}) == "0 B");
  CHECK(format_size(gibibytes(24)) == "24 GiB");
  CHECK(format_size(mebibytes(1536)) == "1.5 GiB");
}

}  // namespace
}  // namespace sharedgpu
