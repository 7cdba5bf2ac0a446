// SPDX-License-Identifier: Apache-2.0
#include "bench/simulator/trace.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <sstream>

namespace sharedgpu {
namespace {

Nanoseconds seconds(double value) { return Nanoseconds(std::llround(value * 1e9)); }

struct Column {
  const char* name;
  double least;
  double most;
  void (*set)(Program&, double);
};

constexpr double kLongest = 1e8;  // seconds
constexpr Column kColumns[] = {
    {"arrival_s", 0, kLongest, [](Program& program, double value) { program.arrival = seconds(value); }},
    {"size", 1, 100, [](Program& program, double value) { program.size = static_cast<unsigned>(value); }},
    {"burst_s", 0, kLongest, [](Program& program, double value) { program.burst = seconds(value); }},
    {"pause_s", 0, kLongest, [](Program& program, double value) { program.pause = seconds(value); }},
    {"period_s", 0, kLongest, [](Program& program, double value) { program.period = seconds(value); }},
    {"deadline_s", 0, kLongest,
     [](Program& program, double value) { program.claims.deadline = seconds(value); }},
    {"kernel_s", 1e-6, kLongest, [](Program& program, double value) { program.kernel = seconds(value); }},
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

std::vector<std::string> split(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, ',');) fields.push_back(field);
  return fields;
}

}  // namespace

std::string read_trace(std::istream& text, const std::string& name, std::vector<Program>& programs) {
  std::vector<const Column*> columns;
  int number = 0;
  for (std::string line; std::getline(text, line);) {
    const std::string place = name + ":" + std::to_string(++number) + ": ";
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string> fields = split(line);
    if (columns.empty()) {
      for (const std::string& field : fields) {
        const auto* known = std::find_if(std::begin(kColumns), std::end(kColumns),
                                         [&](const Column& column) { return field == column.name; });
        if (known == std::end(kColumns)) return place + "unknown column '" + field + "'";
        columns.push_back(known);
      }
      continue;
    }
    if (fields.size() != columns.size())
      return place + std::to_string(fields.size()) + " fields, not " + std::to_string(columns.size());
    Program& program = programs.emplace_back();
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Column& column = *columns[i];
      char* end = nullptr;
      const double value = std::strtod(fields[i].c_str(), &end);
      if (fields[i].empty() || *end != '\0' || !(value >= column.least && value <= column.most))
        return place + column.name + ": '" + fields[i] + "' is not a number in its range";
      column.set(program, value);
    }
    if (program.size == 0) return place + "no size";
  }
  return programs.empty() ? name + ": no program" : "";
}

}  // namespace sharedgpu
