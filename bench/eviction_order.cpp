// SPDX-License-Identifier: Apache-2.0
// bench_eviction_order: counts the bytes that a program larger than the GPU moves between host and GPU.
// Compares them with those of the optimum, which knows all future needs of handles, and with those of the
// least recently used order.
//
//   bench_eviction_order              replays generated programs
//   bench_eviction_order FILE...      replays traces; each line is a need: the handle and its size in bytes
//   bench_eviction_order --write DIR  writes the generated programs as such files into the folder DIR
//
// Prints a line for each trace and window. The window is the footprint divided by the oversubscription. The
// bytes of the needs from which the policy learns do not count: in a file the needs before the line
// "learned", in most generated programs the first two cycles.
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>

#include "bench/needs/replay.h"
#include "bench/needs/traces.h"

namespace sharedgpu::needs {
namespace {

constexpr double kOversubscriptions[] = {1.1, 1.25, 1.5, 2};
constexpr Bytes kMost[] = {{}, mebibytes(256), mebibytes(512)};  // values of `most` of with_plans()

double gib(Bytes bytes) { return static_cast<double>(bytes.count) / static_cast<double>(gibibytes(1).count); }

double ratio(const Moved& moved, const Moved& best) {
  return best.bytes.count == 0
             ? 1
             : static_cast<double>(moved.bytes.count) / static_cast<double>(best.bytes.count);
}

void compare(const Trace& trace) {
  for (const double oversubscription : kOversubscriptions) {
    const double part = static_cast<double>(footprint(trace).count) / oversubscription;
    const Bytes window{static_cast<std::uint64_t>(part) / mebibytes(64).count * mebibytes(64).count};
    const Moved best = optimum(trace, window);
    std::printf("%-26s %6.1f %6.2f %9.1f %7.3f", trace.name.c_str(), gib(footprint(trace)), oversubscription,
                gib(best.bytes), ratio(least_recently_used(trace, window), best));
    for (const Bytes most : kMost) {
      const Moved moved = with_plans(trace, window, most);
      std::printf(" %7.3f %6lu", ratio(moved, best), moved.exchanges);
    }
    std::printf("\n");
  }
}

int run(int count, char** arguments) {
  if (count == 3 && std::strcmp(arguments[1], "--write") == 0) {
    for (const Trace& trace : programs()) {
      std::ofstream file(std::string(arguments[2]) + "/" + trace.name + ".needs");
      write(file, trace);
      if (!file.flush())
        throw std::runtime_error(std::string(arguments[2]) + ": cannot write " + trace.name + ".needs");
    }
    return 0;
  }
  std::printf("%-26s %6s %6s %9s %7s", "trace", "GiB", "over", "best GiB", "LRU");
  for (const Bytes most : kMost) std::printf(" %3lu MiB  moves", most.count >> 20);
  std::printf("\n");
  if (count == 1)
    for (const Trace& trace : programs()) compare(trace);
  for (int i = 1; i < count; ++i) {
    std::ifstream file(arguments[i]);
    if (!file) throw std::runtime_error(std::string(arguments[i]) + ": cannot be read");
    compare(read(file, arguments[i]));
  }
  return 0;
}

}  // namespace
}  // namespace sharedgpu::needs

int main(int count, char** arguments) {
  try {
    return sharedgpu::needs::run(count, arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_eviction_order: %s\n", error.what());
    return 1;
  }
}
