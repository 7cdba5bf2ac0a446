// SPDX-License-Identifier: Apache-2.0
#include "arbiter/daemon/driver_child.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

#include "config/close_from.h"

namespace sharedgpu {

// When the daemon closes a connection, the peer must notice this at once, so the child must hold no copy of
// the socket. This function returns only after the child has closed its copies of the daemon's descriptors.
// One of them is the write end of a pipe, so this function waits for end-of-file on the pipe.
pid_t start_driver_child(UniqueFd end, const std::function<void(int end)>& work) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return -1;
  const UniqueFd closed(ends[0]);
  UniqueFd copy(ends[1]);
  const pid_t child = fork();
  if (child != 0) {
    copy.reset();
    char none = 0;
    while (child > 0 && read(closed.get(), &none, 1) < 0 && errno == EINTR) {
    }
    return child;
  }
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGINT, SIG_DFL);
  // If the child hangs in the driver and the arbiter ends, the child must not hold the arbiter's lock, socket
  // or ledger open.
  constexpr int kEnd = STDERR_FILENO + 1;
  if (end.get() != kEnd) dup3(end.get(), kEnd, O_CLOEXEC);
  close_from(kEnd + 1);
  // A library that is preloaded into programs must not be loaded in front of the driver's libraries.
  unsetenv("LD_PRELOAD");
  work(kEnd);
  _exit(0);
}

}  // namespace sharedgpu
