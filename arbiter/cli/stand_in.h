// SPDX-License-Identifier: Apache-2.0
// A process that represents its child: it forwards the signals that it receives, and stops and ends as the
// child does. At most one per process, which must have no other threads.
#pragma once

#include <sys/types.h>

#include <functional>

namespace sharedgpu::cli {

class StandIn {
 public:
  // Forks. The child calls `execute`, and exits with its result. Returns 0 or an errno value.
  int start(const std::function<int()>& execute);

  // True if the child has ended. Call it every few milliseconds, since it also detects that the child stops.
  bool child_has_ended();
  // True if the child has ended and a signal asks this process to end: the caller should stop waiting.
  bool is_to_hurry() const;
  // Waits for the child. Returns the child's exit status, or dies of the signal that ended the child.
  int end();

 private:
  bool look(int options);

  pid_t child_ = -1;
  bool ended_ = false;
};

}  // namespace sharedgpu::cli
