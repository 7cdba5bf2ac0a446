// SPDX-License-Identifier: Apache-2.0
#include "arbiter/cli/table.h"

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

namespace sharedgpu::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kDecimals = 3;

// The text of a value in a table for people: numbers with a fraction are rounded.
std::string rounded_text_of(const OrderedJson& value) {
  if (!value.is_number_float()) return value.is_string() ? value.get<std::string>() : value.dump();
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", kDecimals, value.get<double>());
  return text;
}

std::string text_of(const OrderedJson& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Quotes a text that contains a comma, a quote or the end of a line (RFC 4180).
std::string csv_of(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + '"';
}

void print_csv(const OrderedJson& rows, const OrderedJson& header) {
  auto print = [](const std::string& text, bool first) {
    std::printf("%s%s", first ? "" : ",", text.c_str());
  };
  for (auto it = header.begin(); it != header.end(); ++it) print(it.key(), it == header.begin());
  std::printf("\n");
  for (const OrderedJson& row : rows) {
    for (auto it = row.begin(); it != row.end(); ++it) print(csv_of(text_of(*it)), it == row.begin());
    std::printf("\n");
  }
}

void print_table(const OrderedJson& rows, const OrderedJson& header) {
  std::vector<std::size_t> widths;
  for (auto it = header.begin(); it != header.end(); ++it) {
    std::size_t& width = widths.emplace_back(it.key().size());
    for (const OrderedJson& row : rows) width = std::max(width, rounded_text_of(row.at(it.key())).size());
  }
  auto print = [&](const std::string& text, std::size_t column, bool right) {
    const int width = static_cast<int>(widths[column]);
    std::printf("%s%*s", column == 0 ? "" : "  ", right ? width : -width, text.c_str());
  };
  std::size_t column = 0;
  for (auto it = header.begin(); it != header.end(); ++it, ++column) print(it.key(), column, it->is_number());
  std::printf("\n");
  for (const OrderedJson& row : rows) {
    column = 0;
    for (auto it = row.begin(); it != row.end(); ++it, ++column)
      print(rounded_text_of(*it), column, it->is_number());
    std::printf("\n");
  }
}

}  // namespace

void print_rows(const OrderedJson& rows, const OrderedJson& header, const std::string& format) {
  if (format == "json")
    std::printf("%s\n", rows.dump(2, ' ', false, OrderedJson::error_handler_t::replace).c_str());
  else
    (format == "csv" ? print_csv : print_table)(rows, header);
}

}  // namespace sharedgpu::cli
