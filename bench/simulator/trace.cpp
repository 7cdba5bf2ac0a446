// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "protocol/split.h"

namespace sharedgpu {
namespace {

Nanoseconds seconds(double value) { return Nanoseconds(std::llround(value * 1e9)); }

struct Column {
  const char* name;
  double least;
  double most;
  void (*set)(Program&, double);
};

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // spreadsheets write it at the beginning of a
                                                             // file
constexpr std::size_t kLongestLine = 1000;
constexpr double kLongest = 1e8;  // seconds
constexpr double kShortest = 1e-6;
constexpr Column kColumns[] = {
    {"arrival_s", 0, kLongest, [](Program& program, double value) { program.arrival = seconds(value); }},
    {"size", 1, 100, [](Program& program, double value) { program.size = static_cast<unsigned>(value); }},
    {"burst_s", 0, kLongest, [](Program& program, double value) { program.burst = seconds(value); }},
    {"pause_s", 0, kLongest, [](Program& program, double value) { program.pause = seconds(value); }},
    {"period_s", 0, kLongest, [](Program& program, double value) { program.period = seconds(value); }},
    {"deadline_s", 0, kLongest,
     [](Program& program, double value) { program.claims.deadline = seconds(value); }},
    {"kernel_s", kShortest, kLongest,
     [](Program& program, double value) { program.kernel = seconds(value); }},
    {"work_s", 0, kLongest, [](Program& program, double value) { program.work = seconds(value); }},
    {"units", 1, 1e6,
     [](Program& program, double value) { program.claims.units = static_cast<std::uint32_t>(value); }},
    {"request", 0, 100,
     [](Program& program, double value) {
       program.claims.request = value / 100;
       program.claims.timed = true;
     }},
    {"limit", 1, 100,
     [](Program& program, double value) {
       program.claims.limit = value / 100;
       program.claims.timed = true;
     }},
    {"priority", -1000, 1000,
     [](Program& program, double value) { program.claims.priority = static_cast<std::int32_t>(value); }},
};

std::string find_column(const std::string& name, std::vector<const Column*>& columns) {
  const auto* known = std::find_if(std::begin(kColumns), std::end(kColumns),
                                   [&](const Column& column) { return name == column.name; });
  if (known == std::end(kColumns)) return "unknown column '" + name + "'";
  if (std::find(columns.begin(), columns.end(), known) != columns.end()) return name + ": more than once";
  columns.push_back(known);
  return {};
}

std::string set_value(const std::string& text, const Column& column, Program& program) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool apart_from_zero = value == 0 || std::abs(value) >= kShortest;
  if (text.empty() || end != text.c_str() + text.size() || !apart_from_zero ||
      !(value >= column.least && value <= column.most))
    return std::string(column.name) + ": '" + text + "' is not a number in its range";
  column.set(program, value);
  return {};
}

}  // namespace

std::string read_trace(std::istream& text, const std::string& name, std::vector<Program>& programs) {
  std::vector<const Column*> columns;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    const std::string place = name + ":" + std::to_string(++number) + ": ";
    if (number == 1 && line.starts_with(kByteOrderMark)) line.erase(0, kByteOrderMark.size());
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.front() == '#') continue;
    if (line.size() > kLongestLine)
      return place + "longer than " + std::to_string(kLongestLine) + " characters";
    const std::vector<std::string_view> fields = split(line, ',');
    if (columns.empty()) {
      for (const std::string_view field : fields)
        if (std::string error = find_column(std::string(field), columns); !error.empty())
          return place + error;
      continue;
    }
    if (fields.size() != columns.size())
      return place + std::to_string(fields.size()) + " fields, not " + std::to_string(columns.size());
    Program& program = programs.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i)
      if (std::string error = set_value(std::string(fields[i]), *columns[i], program); !error.empty())
        return place + error;
    if (program.size == 0) return place + "no size";
    if (program.period > Nanoseconds{} && program.burst == Nanoseconds{})
      return place + "period_s without burst_s";
    if (program.claims.deadline > Nanoseconds{} && program.period == Nanoseconds{})
      return place + "deadline_s without period_s";
  }
  if (text.bad()) return name + ": cannot be read";
  return programs.empty() ? name + ": no program" : "";
}

}  // namespace sharedgpu
