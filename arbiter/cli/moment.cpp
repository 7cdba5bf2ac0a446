// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/moment.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "protocol/split.h"

namespace sharedgpu::cli {
namespace {

using namespace std::chrono_literals;

constexpr int kLastYear = 2261;  // 64-bit nanoseconds since 1970 end in 2262

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

std::tm local(Nanoseconds moment) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(moment).count();
  std::tm parts = {};
  localtime_r(&seconds, &parts);
  return parts;
}

struct Date {
  int year;
  int month;
  int day;
};
struct Clock {
  int hour = 0;
  int minute = 0;
  int second = 0;
};

std::optional<Nanoseconds> moment_of(const Date& date, const Clock& clock) {
  if (date.year < 1970 || date.year > kLastYear) return std::nullopt;
  std::tm parts = {};
  parts.tm_year = date.year - 1900;
  parts.tm_mon = date.month - 1;
  parts.tm_mday = date.day;
  parts.tm_hour = clock.hour;
  parts.tm_min = clock.minute;
  parts.tm_sec = clock.second;
  parts.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&parts);
  // mktime() changes a date that does not exist, such as 31 June, to a date in the next month.
  const bool is_day = parts.tm_mday == date.day && parts.tm_mon == date.month - 1;
  return is_day && seconds >= 0 ? std::optional<Nanoseconds>(std::chrono::seconds(seconds)) : std::nullopt;
}

// Parses one to `most` digits.
std::optional<int> number(std::string_view text, std::size_t most) {
  if (text.empty() || text.size() > most) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = 10 * value + (c - '0');
  }
  return value;
}

// Parses "HH:MM", "HH:MM:SS", "4:30pm".
std::optional<Clock> parse_clock(std::string_view text) {
  int half = -1;  // 0: am, 1: pm, -1: 24-hour clock
  if (text.ends_with("am") || text.ends_with("pm")) {
    half = text.ends_with("pm") ? 1 : 0;
    text.remove_suffix(2);
    while (text.ends_with(' ')) text.remove_suffix(1);
  }
  const std::vector<std::string_view> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  const auto hour = number(parts[0], 2);
  const auto minute = number(parts[1], 2);
  const auto second = parts.size() == 3 ? number(parts[2], 2) : std::optional(0);
  if (!hour || !minute || !second || *hour > 23 || *minute > 59 || *second > 59) return std::nullopt;
  if (half >= 0 && (*hour < 1 || *hour > 12)) return std::nullopt;
  return Clock{half < 0 ? *hour : *hour % 12 + 12 * half, *minute, *second};
}

// Parses MMDD[YY], MM/DD[/YY], DD.MM[.YY] and YYYY-MM-DD. If the text has no year, the date is in `year`.
std::optional<Date> parse_date(std::string_view text, int year) {
  const auto of = [&](std::string_view month, std::string_view day,
                      std::optional<std::string_view> of_century) -> std::optional<Date> {
    const auto m = number(month, 2);
    const auto d = number(day, 2);
    const auto y = of_century ? number(*of_century, 4) : std::optional(year);
    if (!m || !d || !y || *m < 1 || *m > 12 || *d < 1 || *d > 31) return std::nullopt;
    return Date{*y < 100 ? 2000 + *y : *y, *m, *d};
  };
  if (const auto parts = split(text, '-'); parts.size() == 3 && parts[0].size() == 4)
    return of(parts[1], parts[2], parts[0]);
  if (const auto parts = split(text, '/'); parts.size() == 2 || parts.size() == 3)
    return of(parts[0], parts[1], parts.size() == 3 ? std::optional(parts[2]) : std::nullopt);
  if (const auto parts = split(text, '.'); parts.size() == 2 || parts.size() == 3)
    return of(parts[1], parts[0], parts.size() == 3 ? std::optional(parts[2]) : std::nullopt);
  if (text.size() == 4) return of(text.substr(0, 2), text.substr(2), std::nullopt);
  if (text.size() == 6) return of(text.substr(0, 2), text.substr(2, 2), text.substr(4));
  return std::nullopt;
}

// Parses the text after "now", which is empty or such as "-1hour".
std::optional<Nanoseconds> parse_offset(std::string_view text) {
  if (text.empty()) return Nanoseconds{};
  const bool back = text.front() == '-';
  if (!back && text.front() != '+') return std::nullopt;
  text.remove_prefix(1);
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const auto count = number(text.substr(0, digits), 9);
  std::string_view unit = text.substr(digits);
  if (!count) return std::nullopt;
  struct Unit {
    std::string_view name;
    std::chrono::seconds length;
  };
  static constexpr Unit kUnits[] = {
      {"second", 1s}, {"minute", 60s}, {"hour", 3600s}, {"day", 86400s}, {"week", 7 * 86400s}};
  if (unit.empty()) unit = "second";
  // Slurm also accepts abbreviations of a unit.
  for (const Unit& each : kUnits)
    if (each.name.starts_with(unit) || unit == std::string(each.name) + "s" ||
        (unit.size() > 2 && unit == std::string(each.name.substr(0, 3)) + "s")) {
      const Nanoseconds time = std::min<std::chrono::seconds>(*count * each.length, 86400s * 36500);
      return back ? -time : time;
    }
  return std::nullopt;
}

}  // namespace

std::optional<Nanoseconds> parse_moment(std::string_view given, Nanoseconds now) {
  const std::string text = lower(given);
  const std::tm today = local(now);
  const Date date{today.tm_year + 1900, today.tm_mon + 1, today.tm_mday};
  if (text.starts_with("now")) {
    const auto offset = parse_offset(std::string_view(text).substr(3));
    return offset ? std::optional(now + *offset) : std::nullopt;
  }
  struct Word {
    std::string_view word;
    int hour;
  };
  static constexpr Word kWords[] = {{"today", 0}, {"midnight", 0}, {"elevenses", 11},
                                    {"noon", 12}, {"fika", 15},    {"teatime", 16}};
  for (const Word& each : kWords)
    if (text == each.word) return moment_of(date, {each.hour});
  if (text == "tomorrow") {
    const std::tm next = local(*moment_of(date, {12}) + 24h);
    return moment_of({next.tm_year + 1900, next.tm_mon + 1, next.tm_mday}, {});
  }
  if (const auto clock = parse_clock(text)) return moment_of(date, *clock);
  // Date and time are separated by 'T', or by the last '-', as in 2026-11-22-14:30 and in 11/22-14:30.
  std::size_t end = text.find('t');
  if (end == text.npos && text.find(':') != text.npos) end = text.rfind('-');
  const auto day = parse_date(std::string_view(text).substr(0, end), date.year);
  if (!day) return std::nullopt;
  if (end == text.npos) return moment_of(*day, {});
  const auto clock = parse_clock(std::string_view(text).substr(end + 1));
  return clock ? moment_of(*day, *clock) : std::nullopt;
}

std::string read_period(const std::string& since, const std::string& until, Period& period) {
  const Nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  const auto read = [&](const char* option, const std::string& text, Nanoseconds& moment) -> std::string {
    if (text.empty()) return {};
    const auto parsed = parse_moment(text, now);
    if (!parsed)
      return std::string(option) + ": '" + text +
             "' is not a time as sacct takes it (such as 2026-11-22T14:30, 14:30, today or now-1hour)";
    moment = *parsed;
    return {};
  };
  std::string error = read("--since", since, period.since);
  if (error.empty()) error = read("--until", until, period.until);
  if (error.empty() && period.until <= period.since)
    error = "--until " + until + " is not after --since " + since;
  return error;
}

}  // namespace sharedgpu::cli
