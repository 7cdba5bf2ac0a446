// SPDX-License-Identifier: Apache-2.0
#include "interposer/session/log.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
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

// The file to which standard error referred when the process's first session began. The constructor runs at
// compile time.
struct KeptFile {
  std::atomic<std::uint64_t> device{0};
  std::atomic<std::uint64_t> inode{0};  // zero: no file was kept
};
constinit KeptFile kept;

// Returns true if a line can be written to standard error without a risk for the program: the descriptor must
// be the one that the program was started with, and the write must not block. A program that was started
// without standard error, or has closed it, may have opened a file of its own as descriptor 2. In most cases,
// such a file differs from the kept file, is closed at exec, or cannot be written to.
bool may_mention() {
  struct stat info = {};
  if (fstat(STDERR_FILENO, &info) != 0 || info.st_ino == 0) return false;
  if (info.st_ino != kept.inode.load(std::memory_order_acquire) ||
      info.st_dev != kept.device.load(std::memory_order_relaxed))
    return false;
  const int at_exec = fcntl(STDERR_FILENO, F_GETFD);
  const int mode = fcntl(STDERR_FILENO, F_GETFL);
  if (at_exec < 0 || (at_exec & FD_CLOEXEC) != 0 || mode < 0 || (mode & O_ACCMODE) == O_RDONLY) return false;
  pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
  return poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT;
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

void keep_stderr() {
  struct stat info = {};
  if (kept.inode.load(std::memory_order_relaxed) != 0 || fstat(STDERR_FILENO, &info) != 0) return;
  kept.device.store(info.st_dev, std::memory_order_relaxed);
  kept.inode.store(info.st_ino, std::memory_order_release);
}

void mention(const char* format, ...) {
  if (!may_mention()) return;
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
