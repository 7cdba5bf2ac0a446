// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>

#include <cerrno>
#include <string>

namespace sharedgpu {

// What can be read of `fd` from where it is to its end. `error` is set where it fails on the way.
inline std::string read_all(int fd, int& error) {
  std::string text;
  char buffer[1 << 16];
  ssize_t size;
  while ((size = read(fd, buffer, sizeof buffer)) != 0) {
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      error = errno;
      break;
    }
    text.append(buffer, static_cast<std::size_t>(size));
  }
  return text;
}

}  // namespace sharedgpu
