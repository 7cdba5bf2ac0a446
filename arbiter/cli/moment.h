// SPDX-License-Identifier: Apache-2.0
// Points in time as users write them for sacct(1).
//
// Pure functions, except that they use the local time zone.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "protocol/units.h"

namespace sharedgpu::cli {

// Parses a time as sacct's --starttime takes it, in local time:
//   now, now-1hour, now+30minutes  (seconds, minutes, hours, days, weeks; seconds if no unit is given)
//   today, midnight, noon, elevenses, fika, teatime, tomorrow
//   HH:MM[:SS] [AM|PM]             (today)
//   MMDD[YY], MM/DD[/YY], DD.MM[.YY], YYYY-MM-DD, each with an optional -HH:MM[:SS]
//   YYYY-MM-DD[THH:MM[:SS]]
// `now` and the result are times since 1970. Returns nullopt for any other text.
std::optional<Nanoseconds> parse_moment(std::string_view text, Nanoseconds now);

struct Period {
  Nanoseconds since = Nanoseconds::min();
  Nanoseconds until = Nanoseconds::max();
};

// Reads the values of --since and --until; an empty text sets no bound. Returns an empty string, or an error
// message.
std::string read_period(const std::string& since, const std::string& until, Period& period);

}  // namespace sharedgpu::cli
