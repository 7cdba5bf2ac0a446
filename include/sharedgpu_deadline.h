// SPDX-License-Identifier: Apache-2.0
// For a program to tell sharedgpu whether it has met a deadline, after each piece of work that has one:
//
//   sharedgpu_deadline(finished <= due);
//
// A header alone, for C (C99 or later) and C++, with nothing to link. It does nothing where the program is
// not under `sharedgpu run --deadline`, and never waits: what cannot be told at once is dropped. Safe from
// all threads that leave the environment alone, and in children that have inherited the descriptors (Python's
// subprocess closes them, but for close_fds=False). May change errno. Programs in other languages write "met"
// or "missed" and a newline to the descriptor that SHAREDGPU_DEADLINE_FD names.
#ifndef SHAREDGPU_DEADLINE_H
#define SHAREDGPU_DEADLINE_H

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

// The pipe to tell it to; -1: there is none. A number that we have inherited may be another file's by now, so
// the file must be the one of which SHAREDGPU_DEADLINE_READ ("FD:INODE") has the other end.
static inline int sharedgpu_deadline_fd(void) {
  const char* number = getenv("SHAREDGPU_DEADLINE_FD");
  const char* reading = getenv("SHAREDGPU_DEADLINE_READ");
  const char* inode = reading != NULL ? strchr(reading, ':') : NULL;
  struct stat info;
  int fd;
  if (number == NULL || *number == '\0' || inode == NULL) return -1;
  fd = atoi(number);
  if (fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) return -1;
  return info.st_ino == strtoul(inode + 1, NULL, 10) ? fd : -1;
}

// Tells that a deadline was met (not 0) or missed (0). Returns 0, or -1 where nobody was told.
static inline int sharedgpu_deadline(int met) {
  const char* line = met ? "met\n" : "missed\n";
  struct pollfd pipe;
  pipe.fd = sharedgpu_deadline_fd();
  pipe.events = POLLOUT;
  pipe.revents = 0;
  // POLLERR: nobody has the other end any more, and writing would raise SIGPIPE.
  if (pipe.fd < 0 || poll(&pipe, 1, 0) != 1 || pipe.revents != POLLOUT) return -1;
  return write(pipe.fd, line, strlen(line)) == (ssize_t)strlen(line) ? 0 : -1;
}

#ifdef __cplusplus
}
#endif

#endif
