// SPDX-License-Identifier: Apache-2.0
// Closes all descriptors from number `first` on. Async-signal-safe, so the forked child of a process with
// threads may call it.
#pragma once

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace sharedgpu {

inline void close_from(int first) {
#ifdef SYS_close_range
  if (syscall(SYS_close_range, first, ~0U, 0) == 0) return;  // Linux 5.9
#endif
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  // The limit on descriptors may be a billion, and a billion calls of close() would take minutes.
  if (limit.rlim_cur > 65536) limit.rlim_cur = 65536;
  for (rlim_t fd = static_cast<rlim_t>(first); fd < limit.rlim_cur; ++fd) close(static_cast<int>(fd));
}

}  // namespace sharedgpu
