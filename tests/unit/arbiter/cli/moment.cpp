// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/moment.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <ctime>

namespace sharedgpu::cli {
namespace {

using namespace std::chrono_literals;

struct InUtc {
  InUtc() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
  const Nanoseconds now = 1795357805s;  // 2026-11-22T14:30:05
  const Nanoseconds today = 1795305600s;
  std::optional<Nanoseconds> at(const char* text) const { return parse_moment(text, now); }
};

TEST_CASE("Times are read as sacct reads them") {
  const InUtc utc;
  CHECK(utc.at("now") == utc.now);
  CHECK(utc.at("now-1hour") == utc.now - 1h);
  CHECK(utc.at("now-2hours") == utc.now - 2h);
  CHECK(utc.at("now-90") == utc.now - 90s);
  CHECK(utc.at("now+30minutes") == utc.now + 30min);
  CHECK(utc.at("now-3days") == utc.now - 72h);
  CHECK(utc.at("now-1week") == utc.now - 168h);
  CHECK(utc.at("NOW-1Day") == utc.now - 24h);
  CHECK(utc.at("today") == utc.today);
  CHECK(utc.at("midnight") == utc.today);
  CHECK(utc.at("noon") == utc.today + 12h);
  CHECK(utc.at("teatime") == utc.today + 16h);
  CHECK(utc.at("tomorrow") == utc.today + 24h);
  CHECK(utc.at("14:30") == utc.today + 14h + 30min);
  CHECK(utc.at("4:30pm") == utc.today + 16h + 30min);
  CHECK(utc.at("12:00 AM") == utc.today);
  CHECK(utc.at("07:08:09") == utc.today + 7h + 8min + 9s);
  CHECK(utc.at("2026-11-22") == utc.today);
  CHECK(utc.at("2026-11-22T14:30") == utc.today + 14h + 30min);
  CHECK(utc.at("2026-11-22T14:30:05") == utc.now);
  CHECK(utc.at("2026-11-22-14:30") == utc.today + 14h + 30min);
  CHECK(utc.at("1122") == utc.today);
  CHECK(utc.at("112226") == utc.today);
  CHECK(utc.at("11/22") == utc.today);
  CHECK(utc.at("11/22/26-14:30") == utc.today + 14h + 30min);
  CHECK(utc.at("22.11.26") == utc.today);
}

TEST_CASE("Any other text is no time") {
  const InUtc utc;
  for (const char* wrong : {"",
                            "yesterday",
                            "now-",
                            "now-hour",
                            "now-1parsec",
                            "now*2",
                            "24:00",
                            "14:60",
                            "13:00pm",
                            "2026-13-01",
                            "2026-02-30",
                            "2026-11-22T",
                            "2026-11-22 14:30",
                            "11/22-",
                            "1",
                            "-1",
                            "T14:30",
                            "2026-11-22T14:30:05Z",
                            "9999-01-01",
                            "1234567890123"})
    CHECK_FALSE(utc.at(wrong));
}

TEST_CASE("A period must have a length") {
  const InUtc utc;
  Period period;
  CHECK(read_period("2026-11-22", "2026-11-23", period) == "");
  CHECK(period.until - period.since == 24h);
  CHECK(read_period("2026-11-23", "2026-11-22", period) ==
        "--until 2026-11-22 is not after --since 2026-11-23");
  CHECK(read_period("never", "", period).starts_with("--since: 'never' is not a time"));
}

}  // namespace
}  // namespace sharedgpu::cli
