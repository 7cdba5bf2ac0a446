// SPDX-License-Identifier: Apache-2.0
// What the program tells of its deadlines, through the pipe that `sharedgpu run --deadline` has made.
//
// All processes of the tenant have both ends of that pipe, and each that uses a GPU reads it, where the
// arbiter knows the message: it counts for the tenant, so any may take any line. A read takes whole lines as
// long as no more than a few hundred are unread. Both ends are non-blocking: nobody ever waits for anybody.
// We are guests in the program's table of descriptors, and read only from the file that we were told of.
//
// For the service thread.
#pragma once

#include "interposer/session/doorbell.h"
#include "protocol/deadline_lines.h"

namespace sharedgpu::session {

// "FD:INODE", as SHAREDGPU_DEADLINE_READ has it: a descriptor that we have inherited, and the pipe's number.
struct DeadlinePipe {
  int fd = -1;
  ino_t inode = 0;
};
bool read_deadline_pipe(const char* text, DeadlinePipe& pipe);

class DeadlineReports {
 public:
  DeadlineReports() = default;
  // Reads nothing where the descriptor is another file's.
  explicit DeadlineReports(const DeadlinePipe& pipe);

  // What to poll; -1: there is nothing to read any more.
  int fd() const { return fd_; }
  // Reads what is there, or a part of it where that is much.
  Deadlines take();

 private:
  int fd_ = -1;
  FileIdentity identity_;
  DeadlineLines lines_;
};

}  // namespace sharedgpu::session
