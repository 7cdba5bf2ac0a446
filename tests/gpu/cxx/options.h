// SPDX-License-Identifier: Apache-2.0
// Shared by the C++ programs: the command line, the loop of rounds, and the printing of results.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

struct Options {
  std::size_t mib = 1024;
  double seconds = 5;
};

inline Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 < argc && std::strcmp(argv[i], "--mib") == 0) {
      options.mib = std::strtoull(argv[i + 1], nullptr, 10);
    } else if (i + 1 < argc && std::strcmp(argv[i], "--seconds") == 0) {
      options.seconds = std::strtod(argv[i + 1], nullptr);
    } else {
      std::fprintf(stderr, "usage: %s [--mib N] [--seconds S]\n", argv[0]);
      std::exit(2);
    }
  }
  return options;
}

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::exit(1);
}

// The results that every round must reproduce.
class Results {
 public:
  void add(const std::string& name, std::uint64_t value) {
    auto [known, fresh] = values_.emplace(name, value);
    if (!fresh && known->second != value) fail(name + " is not what it was in the first round");
  }
  void print() const {
    for (const auto& [name, value] : values_)
      std::printf("result %s %016llx\n", name.c_str(), static_cast<unsigned long long>(value));
  }

 private:
  std::map<std::string, std::uint64_t> values_;
};

// Calls `round` for the time of --seconds, but at least three times, and prints the results.
template <class Round>
int run_rounds(const Options& options, Round round) {
  Results results;
  auto begin = std::chrono::steady_clock::now();
  unsigned rounds = 0;
  do {
    round(results);
    ++rounds;
  } while (rounds < 3 ||
           std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() < options.seconds);
  results.print();
  std::printf("%u rounds\n", rounds);
  return 0;
}
