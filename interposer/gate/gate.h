// SPDX-License-Identifier: Apache-2.0
// The gate that every submission to the GPU passes.
//
// Passing costs one load of the lease page and a store to the thread's own mark, no locked instruction. The
// closing side pays: after the arbiter has written the page, the session's turn thread calls close(), which
// makes all threads' marks visible with membarrier(2) and waits for those inside.
//
// A gate that is closed still lets a submission through while a stream of this process is being captured,
// and, one for each thread and ever more rarely, while a drain drags on: the lease is held until
// Released is said, so letting work through is always safe, and a program whose kernel waits for the
// program's own next submission is not hung. For a kernel that waits for the submission of another process
// there is step(). See docs/design/gate.md.
#pragma once

#include "interposer/gate/fence.h"
#include "interposer/gate/marks.h"
#include "interposer/gate/pages.h"

namespace sharedgpu::gate {

namespace detail {
void enter_slowly();
}  // namespace detail

// Whether the calling thread is inside.
inline bool inside() { return detail::self.depth != 0; }

// Whether threads wait at the gate.
bool wanted();
// When one that had waited was let in last, by CLOCK_BOOTTIME.
Nanoseconds let_in();

// In the child of a fork, where only the calling thread lives: an open page, no marks but its own.
void after_fork();

// RAII: inside from construction to destruction. Nests (a driver entry point may call another through our
// door): only the outermost counts. Blocks while the gate is closed.
class Pass {
 public:
  Pass() {
    Thread& self = detail::self;
    if (self.depth++ != 0) return;
    if (Mark* mark = self.mark; mark != nullptr) [[likely]] {
      std::uint64_t before = mark->count.load(std::memory_order_relaxed);
      mark->count.store(before + 1, std::memory_order_relaxed);
      light_fence();
      if (LeasePage::is_open(page().gate.load(std::memory_order_acquire))) [[likely]]
        return;
      mark->count.store(before, std::memory_order_release);
    }
    detail::enter_slowly();
  }
  ~Pass() {
    Thread& self = detail::self;
    if (--self.depth != 0) return;
    Mark* mark = self.mark;
    mark->count.store(mark->count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  // The work goes to the per-thread default stream.
  void to_own_stream() { detail::self.mark->own_stream.store(true, std::memory_order_relaxed); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
};

}  // namespace sharedgpu::gate
