// SPDX-License-Identifier: Apache-2.0
// Runs a child that this process stands in for: this process forwards the signals that it receives to the
// child, and stops and ends as the child does. At most one object per process. The process must have a single
// thread.
#pragma once

#include <sys/types.h>

#include <functional>

namespace sharedgpu::cli {

class StandIn {
 public:
  // Forks. The child calls `execute`, and exits with its result. Returns 0 or an errno value.
  int start(const std::function<int()>& execute);

  // Returns true if the child has ended. Call every few milliseconds, since this call also detects that the
  // child has stopped.
  bool child_has_ended();
  // Returns true if the child has ended and a signal has asked this process to end, so that the caller should
  // stop waiting. If the child exited normally, only signals that came later count.
  bool is_to_hurry() const;
  // Waits for the child. Returns the child's exit status, or dies of the signal that ended the child.
  int end();

 private:
  bool look(int options);

  pid_t child_ = -1;
  bool ended_ = false;
};

}  // namespace sharedgpu::cli
