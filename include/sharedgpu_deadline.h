// SPDX-License-Identifier: Apache-2.0
// Lets a program report to sharedgpu, after each piece of work with a deadline, whether it met the deadline:
//
//   sharedgpu_deadline(finished <= due);
//
// Header-only, for C (C99 or later) and C++. A report does nothing if the program has no
// SHAREDGPU_DEADLINE_FD, and never blocks: a report that cannot be written at once is dropped. Thread-safe as
// long as no thread changes the environment. Children can report too if they inherit the descriptors
// (Python's subprocess closes them unless close_fds=False). May change errno. Programs in other languages
// write "met" or "missed" and a newline to the descriptor that SHAREDGPU_DEADLINE_FD names.
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

// Returns the descriptor of the pipe to write to, or -1 if there is no pipe. The inherited number may refer
// to another file by now. So the function compares the file's inode number with that in
// SHAREDGPU_DEADLINE_READ ("FD:INODE").
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

// Reports that a deadline was met (nonzero) or missed (0). Returns 0, or -1 if nothing was reported.
static inline int sharedgpu_deadline(int met) {
  const char* line = met ? "met\n" : "missed\n";
  struct pollfd pipe;
  pipe.fd = sharedgpu_deadline_fd();
  pipe.events = POLLOUT;
  pipe.revents = 0;
  // POLLERR means that the other end is closed; writing would then raise SIGPIPE.
  if (pipe.fd < 0 || poll(&pipe, 1, 0) != 1 || pipe.revents != POLLOUT) return -1;
  return write(pipe.fd, line, strlen(line)) == (ssize_t)strlen(line) ? 0 : -1;
}

#ifdef __cplusplus
}
#endif

#endif
