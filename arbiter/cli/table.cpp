// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/table.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

namespace sharedgpu::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of(const Json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

void print_csv(const Json& rows, const Json& header) {
  auto print = [](const std::string& text, bool first) {
    std::printf("%s%s", first ? "" : ",", text.c_str());
  };
  for (auto it = header.begin(); it != header.end(); ++it) print(it.key(), it == header.begin());
  std::printf("\n");
  for (const Json& row : rows) {
    for (auto it = row.begin(); it != row.end(); ++it) print(text_of(*it), it == row.begin());
    std::printf("\n");
  }
}

void print_table(const Json& rows, const Json& header) {
  std::vector<std::size_t> widths;
  for (auto it = header.begin(); it != header.end(); ++it) {
    std::size_t& width = widths.emplace_back(it.key().size());
    for (const Json& row : rows) width = std::max(width, text_of(row.at(it.key())).size());
  }
  auto print = [&](const std::string& text, std::size_t column, bool right) {
    const int width = static_cast<int>(widths[column]);
    std::printf("%s%*s", column == 0 ? "" : "  ", right ? width : -width, text.c_str());
  };
  std::size_t column = 0;
  for (auto it = header.begin(); it != header.end(); ++it, ++column) print(it.key(), column, it->is_number());
  std::printf("\n");
  for (const Json& row : rows) {
    column = 0;
    for (auto it = row.begin(); it != row.end(); ++it, ++column) print(text_of(*it), column, it->is_number());
    std::printf("\n");
  }
}

}  // namespace

void print_rows(const Json& rows, const Json& header, const std::string& format) {
  if (format == "json")
    std::printf("%s\n", rows.dump(2).c_str());
  else
    (format == "csv" ? print_csv : print_table)(rows, header);
}

std::optional<Nanoseconds> parse_moment(const std::string& text) {
  for (const char* form : {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"}) {
    std::tm parts = {};
    const char* end = strptime(text.c_str(), form, &parts);
    if (end == nullptr || *end != '\0') continue;
    parts.tm_isdst = -1;
    const std::time_t seconds = std::mktime(&parts);
    // 64 bits hold nanoseconds until the year 2262; `tm_year` counts from 1900.
    if (seconds != -1 && parts.tm_year < 300) return std::chrono::seconds(seconds);
  }
  return std::nullopt;
}

std::string read_moment(const char* option, const std::string& text, Nanoseconds& moment) {
  if (text.empty()) return {};
  const auto parsed = parse_moment(text);
  if (!parsed) return std::string(option) + ": '" + text + "' is not a time (such as 2026-11-22T14:30)";
  moment = *parsed;
  return {};
}

}  // namespace sharedgpu::cli
