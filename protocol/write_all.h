// SPDX-License-Identifier: Apache-2.0
// Writes to files and sockets in blocking mode. Any thread.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>

namespace sharedgpu {

// Writes all bytes. On failure, returns false and leaves errno set.
inline bool write_all(int file, const void* data, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t written = write(file, static_cast<const char*>(data) + done, size - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    done += static_cast<std::size_t>(written);
  }
  return true;
}

}  // namespace sharedgpu
