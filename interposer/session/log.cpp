// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "protocol/environment.h"

namespace sharedgpu {
namespace {

void write_line(const char* format, std::va_list arguments) {
  char line[512];
  int start = std::snprintf(line, sizeof line, "sharedgpu[%d]: ", static_cast<int>(getpid()));
  // NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized): the callers have called va_start
  int length =
      std::vsnprintf(line + start, sizeof line - static_cast<std::size_t>(start) - 1, format, arguments);
  if (length < 0) return;
  auto end = std::min(static_cast<std::size_t>(start + length), sizeof line - 2);
  line[end] = '\n';
  // A closed or full stderr must not disturb the program.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, line, end + 1);
}

bool debugging() {
  static constinit std::atomic<int> known{-1};
  int value = known.load(std::memory_order_relaxed);
  if (value < 0) {
    const char* wanted = std::getenv(environment::kDebug);
    value = wanted != nullptr && std::strcmp(wanted, "1") == 0 ? 1 : 0;
    known.store(value, std::memory_order_relaxed);
  }
  return value == 1;
}

}  // namespace

void say(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  write_line(format, arguments);
  va_end(arguments);
}

void debug(const char* format, ...) {
  if (!debugging()) return;
  std::va_list arguments;
  va_start(arguments, format);
  write_line(format, arguments);
  va_end(arguments);
}

}  // namespace sharedgpu
