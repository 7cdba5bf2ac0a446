// SPDX-License-Identifier: Apache-2.0
// Measures the cost of libsharedgpu.so for a program that never uses CUDA. Runs the program many times in
// pairs, without and with the library in LD_PRELOAD. Prints the median time without the library, and the
// median and the quartiles of the difference.
//
//   bench_startup LIBRARY [PROGRAM [PAIRS]]      default: /bin/true, 500
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

double run(const char* program, char* const* environment) {
  char* arguments[] = {const_cast<char*>(program), nullptr};
  auto begin = std::chrono::steady_clock::now();
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, program, nullptr, nullptr, arguments, environment) != 0 ||
      waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) == 127) {
    std::fprintf(stderr, "bench_startup: cannot run %s\n", program);
    std::exit(1);
  }
  return Milliseconds(std::chrono::steady_clock::now() - begin).count();
}

double at(std::vector<double> values, double part) {
  auto place = values.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_startup LIBRARY [PROGRAM [PAIRS]]\n");
    return 2;
  }
  const char* program = argc > 2 ? argv[2] : "/bin/true";
  const int pairs = argc > 3 ? std::max(std::atoi(argv[3]), 1) : 500;
  std::string preload = std::string("LD_PRELOAD=") + argv[1];
  char* with[] = {preload.data(), nullptr};
  char* without[] = {nullptr};
  std::vector<double> plain;
  std::vector<double> more;
  for (int i = 0; i < pairs; ++i) {
    plain.push_back(run(program, without));
    more.push_back(run(program, with) - plain.back());
  }
  std::printf("%s: %.3f ms; with the library %.3f ms more (median of %d pairs; quartiles %.3f and %.3f)\n",
              program, at(plain, 0.5), at(more, 0.5), pairs, at(more, 0.25), at(more, 0.75));
  return 0;
}
