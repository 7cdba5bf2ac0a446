// SPDX-License-Identifier: Apache-2.0
// Receives the program's reports of its deadlines, through the pipe that `sharedgpu run --deadline` has made.
//
// All processes of the tenant have both ends of the pipe. Each process that uses a GPU reads the pipe, if its
// arbiter knows the message Deadlines. A line counts for the tenant, so any process may take it. A read
// returns whole lines as long as no more than a few hundred lines are unread. Both ends are non-blocking, so
// no process waits for another. The descriptor table belongs to the program, so this class reads a descriptor
// only after checking that it is still the pipe.
//
// Only the service thread uses this class.
#pragma once

#include "interposer/session/doorbell.h"
#include "protocol/deadline_lines.h"

namespace sharedgpu::session {

// The value "FD:INODE" of SHAREDGPU_DEADLINE_READ: an inherited descriptor, and the inode number of the pipe.
struct DeadlinePipe {
  int fd = -1;
  ino_t inode = 0;
};
bool read_deadline_pipe(const char* text, DeadlinePipe& pipe);

class DeadlineReports {
 public:
  DeadlineReports() = default;
  // Reads nothing if the descriptor belongs to another file.
  explicit DeadlineReports(const DeadlinePipe& pipe);

  // The descriptor to poll; -1 if there is nothing left to read.
  int fd() const { return fd_; }
  // Reads the available lines, or a part of them if there are many.
  Deadlines take();

 private:
  int fd_ = -1;
  FileIdentity identity_;
  DeadlineLines lines_;
};

}  // namespace sharedgpu::session
