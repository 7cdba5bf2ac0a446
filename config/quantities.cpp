// SPDX-License-Identifier: Apache-2.0
#include "config/quantities.h"

#include <charconv>
#include <cmath>
#include <cstdio>

namespace sharedgpu {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kSizeUnits[] = {
    {"B", 1},       {"K", 0x1p10},   {"KB", 0x1p10},  {"KiB", 0x1p10}, {"M", 0x1p20},
    {"MB", 0x1p20}, {"MiB", 0x1p20}, {"G", 0x1p30},   {"GB", 0x1p30},  {"GiB", 0x1p30},
    {"T", 0x1p40},  {"TB", 0x1p40},  {"TiB", 0x1p40},
};
constexpr Unit kTimeUnits[] = {
    {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"m", 60e9}, {"min", 60e9}, {"h", 3600e9},
};
constexpr Unit kPercentUnits[] = {{"%", 1}};

// The largest number of bytes or nanoseconds that the parsers accept. It is larger than any memory or time in
// use, and so small that sums do not overflow.
constexpr double kLargest = 0x1p50;

bool same_letters(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
    if (lower(a[i]) != lower(b[i])) return false;
  }
  return true;
}

template <std::size_t N>
std::optional<double> parse_quantity(std::string_view text, const Unit (&units)[N]) {
  if (text.empty() || text.front() < '0' || text.front() > '9') return std::nullopt;
  double number = 0;
  auto [rest, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc{}) return std::nullopt;
  std::string_view suffix(rest, static_cast<std::size_t>(text.data() + text.size() - rest));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  if (suffix.empty() && number == 0) return 0;  // zero needs no unit
  for (const Unit& unit : units)
    if (same_letters(suffix, unit.name)) {
      double value = number * unit.factor;
      return value <= kLargest ? std::optional(value) : std::nullopt;
    }
  return std::nullopt;
}

}  // namespace

std::optional<Bytes> parse_size(std::string_view text) {
  auto value = parse_quantity(text, kSizeUnits);
  if (!value) return std::nullopt;
  return Bytes{static_cast<std::uint64_t>(std::llround(*value))};
}

std::optional<Nanoseconds> parse_time(std::string_view text) {
  auto value = parse_quantity(text, kTimeUnits);
  if (!value) return std::nullopt;
  return Nanoseconds(std::llround(*value));
}

std::optional<double> parse_percent(std::string_view text) {
  auto value = parse_quantity(text, kPercentUnits);
  return value && *value <= 100 ? value : std::nullopt;
}

std::optional<Amount> parse_amount(std::string_view text) {
  if (auto percent = parse_percent(text)) return Amount{.bytes = {}, .percent = *percent};
  if (auto size = parse_size(text)) return Amount{.bytes = *size, .percent = 0};
  return std::nullopt;
}

Bytes Amount::of(Bytes total) const {
  if (percent == 0) return bytes;
  return {static_cast<std::uint64_t>(static_cast<double>(total.count) * percent / 100)};
}

std::string format_size(Bytes size) {
  static constexpr const char* kNames[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(size.count);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kNames)) {
    value /= 1024;
    ++unit;
  }
  char text[32];
  bool whole = unit == 0 || value == std::floor(value);
  std::snprintf(text, sizeof text, whole ? "%.0f %s" : "%.1f %s", value, kNames[unit]);
  return text;
}

}  // namespace sharedgpu
