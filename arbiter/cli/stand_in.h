// SPDX-License-Identifier: Apache-2.0
// A process that stands for its child: who sends it a signal means that one, and it stops and ends as the
// child does. One in a process, and no other threads.
#pragma once

#include <sys/types.h>

#include <functional>

namespace sharedgpu::cli {

class StandIn {
 public:
  // Forks. The child calls `execute`, and ends with what that returns. Returns 0 or an errno value.
  int start(const std::function<int()>& execute);

  // True if the child has ended. Call it every few milliseconds: it also notices a child that stops.
  bool child_has_ended();
  // Nothing is to be waited for any more: it has ended, and a signal wants that.
  bool is_to_hurry() const;
  // Waits for the child. Returns its exit status, or dies of the signal that has ended it.
  int end();

 private:
  bool look(int options);

  pid_t child_ = -1;
  bool ended_ = false;
};

}  // namespace sharedgpu::cli
