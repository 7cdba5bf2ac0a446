// SPDX-License-Identifier: Apache-2.0
// Receives the program's reports of its deadlines, through the pipe that `sharedgpu run --deadline` has made.
//
// All processes of the tenant have both ends of the pipe. Each process that uses a GPU reads the pipe, if its
// arbiter knows the message Deadlines. Deadlines are counted for the whole tenant, so any of its processes
// may read a line. As long as no more than a few hundred lines are unread, a read returns only whole lines.
// Both ends are non-blocking, so no process waits for another process. The descriptor table belongs to the
// program, so this class checks before each read that the descriptor still refers to the pipe.
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
  // If the descriptor does not refer to the pipe, this object never reads.
  explicit DeadlineReports(const DeadlinePipe& pipe);

  // The descriptor to poll; -1 if there is no pipe, or nothing more can be read.
  int fd() const { return fd_; }
  // Reads the available lines, or only the first of them if there are very many, and returns the counts.
  Deadlines take();

 private:
  int fd_ = -1;
  FileIdentity identity_;
  DeadlineLines lines_;
};

}  // namespace sharedgpu::session
