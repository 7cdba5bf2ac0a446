// SPDX-License-Identifier: Apache-2.0
// Compares the decisions of the core with those that decisions.golden records.
//
// To find the first decision that differs between two builds: --check names the groups that differ,
// --scenarios names the scenarios of a group that differ, and --trace writes every decision of one scenario.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <thread>

#include "scenarios.h"

namespace sharedgpu::test {
namespace {

constexpr const char* kFirstLine = "# SPDX-License-Identifier: Apache-2.0";
constexpr const char* kUsage =
    "usage: decisions --check [--loose] [--groups A-B] [--threads N] GOLDEN\n"
    "       decisions --record [--threads N] >GOLDEN\n"
    "       decisions --scenarios A-B\n"
    "       decisions --trace N\n"
    "--loose: compares only messages, gates and leases, with their times.\n";

struct Range {
  unsigned first = 0;
  unsigned last = 0;
};

struct Seen {
  DecisionDigest decisions;
  World::Tally tally;
  std::vector<std::string> errors;
};

Seen run(unsigned number, World::Listener listener = {}) {
  Seen seen;
  const auto count = [&](Nanoseconds now, const Action& action) {
    seen.decisions.note(now, action);
    if (listener) listener(now, action);
  };
  try {
    World world(scenario_of(number), count);
    world.run();
    seen.tally = world.tally();
  } catch (const std::exception& error) {
    seen.errors.push_back("scenario " + std::to_string(number) + ": " + error.what());
  }
  return seen;
}

using Count = unsigned World::Tally::*;
// Each of these events must occur at least once in any 13 consecutive groups of scenarios.
constexpr std::pair<const char*, Count> kCounts[] = {
    {"turns", &World::Tally::turns},
    {"evictions", &World::Tally::evictions},
    {"refusals", &World::Tally::refusals},
    {"kernels", &World::Tally::kernels},
    {"stuck", &World::Tally::stuck},
    {"settled", &World::Tally::settled},
    {"steps", &World::Tally::steps},
    {"late", &World::Tally::late},
    {"home", &World::Tally::home},
    {"host refusals", &World::Tally::host_refusals},
    {"host waits", &World::Tally::host_waits},
    {"stops", &World::Tally::stops},
    {"given back", &World::Tally::given_back},
    {"taken", &World::Tally::taken},
    {"late work", &World::Tally::late_work},
    {"answers", &World::Tally::answers},
    {"forgotten", &World::Tally::forgotten},
};

void add(Seen& sum, const Seen& more) {
  for (const auto& [name, count] : kCounts) sum.tally.*count += more.tally.*count;
  sum.errors.insert(sum.errors.end(), more.errors.begin(), more.errors.end());
}

Seen run_group(unsigned group) {
  Seen sum;
  for (unsigned i = 0; i < kPerGroup; ++i) {
    const Seen seen = run(group * kPerGroup + i);
    sum.decisions.append(seen.decisions);
    add(sum, seen);
  }
  return sum;
}

// The results are in the order of the groups, independent of the number of threads.
std::vector<Seen> run_groups(Range groups, unsigned threads) {
  std::vector<Seen> seen(groups.last - groups.first + 1);
  std::atomic<unsigned> next = 0;
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < threads; ++i)
    workers.emplace_back([&] {
      for (unsigned at = next++; at < seen.size(); at = next++) seen[at] = run_group(groups.first + at);
    });
  for (std::thread& worker : workers) worker.join();
  return seen;
}

bool report(const std::vector<Seen>& groups) {
  Seen sum;
  for (const Seen& seen : groups) add(sum, seen);
  bool good = sum.errors.empty();
  for (const std::string& error : sum.errors) std::cerr << error << '\n';
  for (const auto& [name, count] : kCounts) {
    std::cerr << name << ' ' << sum.tally.*count << '\n';
    good = good && sum.tally.*count > 0;
  }
  return good;
}

std::string hex(std::uint64_t digest) {
  std::array<char, 20> text;
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest));
  return text.data();
}

std::string digests(const DecisionDigest& decisions) {
  return hex(decisions.strict) + " " + hex(decisions.loose);
}

int record(unsigned threads) {
  const std::vector<Seen> seen = run_groups({0, kGroups - 1}, threads);
  std::cout << kFirstLine << '\n';
  for (unsigned group = 0; group < kGroups; ++group)
    std::cout << group << ' ' << name_of_group(group) << ' ' << digests(seen[group].decisions) << '\n';
  return report(seen) ? EXIT_SUCCESS : EXIT_FAILURE;
}

struct Golden {
  std::string name;
  std::string strict;
  std::string loose;
};

std::vector<Golden> read(const std::string& path) {
  std::ifstream file(path);
  std::string first;
  if (!std::getline(file, first) || first != kFirstLine) throw std::runtime_error(path + " cannot be read");
  std::vector<Golden> golden;
  unsigned group = 0;
  for (Golden line; file >> group >> line.name >> line.strict >> line.loose; golden.push_back(line))
    if (group != golden.size() || line.name != name_of_group(group))
      throw std::runtime_error(path + " is not of these scenarios");
  if (golden.size() != kGroups) throw std::runtime_error(path + " has not all groups");
  return golden;
}

int check(const std::string& path, Range groups, bool loose_only, unsigned threads) {
  const std::vector<Golden> golden = read(path);
  const std::vector<Seen> seen = run_groups(groups, threads);
  unsigned differ = 0;
  for (unsigned i = 0; i < seen.size(); ++i) {
    const unsigned group = groups.first + i;
    const bool strict = hex(seen[i].decisions.strict) == golden[group].strict;
    const bool loose = hex(seen[i].decisions.loose) == golden[group].loose;
    if (loose && (strict || loose_only)) continue;
    ++differ;
    std::cout << "group " << group << ' ' << golden[group].name << ": "
              << (loose ? "other actions, the same decisions" : "other decisions") << " in scenarios "
              << group * kPerGroup << '-' << (group + 1) * kPerGroup - 1 << '\n';
  }
  std::cout << differ << " of " << seen.size() << " groups differ\n";
  return report(seen) && differ == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int print(Range scenarios) {
  for (unsigned number = scenarios.first; number <= scenarios.last; ++number) {
    const Seen seen = run(number);
    std::cout << number << ' ' << digests(seen.decisions) << '\n';
    for (const std::string& error : seen.errors) std::cout << error << '\n';
  }
  return EXIT_SUCCESS;
}

int trace(unsigned number) {
  const Seen seen =
      run(number, [](Nanoseconds now, const Action& action) { std::cout << describe(now, action) << '\n'; });
  for (const std::string& error : seen.errors) std::cout << error << '\n';
  return EXIT_SUCCESS;
}

unsigned number_of(const std::string& text, unsigned most) {
  std::size_t end = 0;
  const unsigned long number = std::stoul(text, &end);
  if (end != text.size() || number > most) throw std::invalid_argument(text);
  return static_cast<unsigned>(number);
}

Range range_of(const std::string& text, unsigned most) {
  const std::size_t dash = text.find('-');
  const Range range{number_of(text.substr(0, dash), most),
                    number_of(text.substr(dash == std::string::npos ? 0 : dash + 1), most)};
  if (range.first > range.last) throw std::invalid_argument(text);
  return range;
}

int dispatch(const std::vector<std::string>& arguments) {
  constexpr unsigned kLast = kGroups * kPerGroup - 1;
  std::string mode;
  std::string path;
  Range groups{0, kGroups - 1};
  bool loose_only = false;
  unsigned threads = std::max(std::thread::hardware_concurrency(), 1u);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& its = arguments[i];
    const auto value = [&] { return arguments.at(++i); };
    if (its == "--trace") return trace(number_of(value(), kLast));
    if (its == "--scenarios") return print(range_of(value(), kLast));
    if (its == "--check" || its == "--record")
      mode = its;
    else if (its == "--loose")
      loose_only = true;
    else if (its == "--groups")
      groups = range_of(value(), kGroups - 1);
    else if (its == "--threads")
      threads = number_of(value(), 1024);
    else
      path = its;
  }
  if (mode == "--record" && path.empty()) return record(threads);
  if (mode == "--check" && !path.empty()) return check(path, groups, loose_only, threads);
  throw std::invalid_argument("no mode");
}

}  // namespace
}  // namespace sharedgpu::test

int main(int argc, char** argv) {
  try {
    return sharedgpu::test::dispatch({argv + 1, argv + argc});
  } catch (const std::logic_error&) {
    std::cerr << sharedgpu::test::kUsage;
  } catch (const std::exception& error) {
    std::cerr << error.what() << '\n';
  }
  return EXIT_FAILURE;
}
