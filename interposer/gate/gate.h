// SPDX-License-Identifier: Apache-2.0
// The gate that every submission to the GPU passes.
//
// Passing costs one load of the lease page and a store to the thread's own pass counter, and no locked
// instruction. The thread that closes the gate bears the cost. After the arbiter has written the page, the
// session's turn thread calls close(). This function makes the pass counters of all threads visible with
// membarrier(2), and waits for the threads inside.
//
// While the process holds the lease, a closed gate still lets submissions through if a stream of this process
// is being captured. During a long drain, the closed gate also lets each thread make single submissions, at
// growing intervals. Without these submissions, a program whose kernel waits for the program's own next
// submission would hang. These submissions are safe, since the lease is held until Released is sent. A kernel
// may also wait for a submission of another process; step() is for this case. See docs/design/gate.md.
#pragma once

#include "interposer/gate/fence.h"
#include "interposer/gate/marks.h"
#include "interposer/gate/pages.h"

namespace sharedgpu::gate {

namespace detail {
void enter_slowly();
}  // namespace detail

// Returns true if the calling thread is inside the gate.
inline bool inside() { return detail::self.depth != 0; }

// Returns true if threads wait at the gate.
bool wanted();
// The time at which the gate last let a waiting thread in, by CLOCK_BOOTTIME; zero if no thread has waited
// yet.
Nanoseconds let_in();

// Forgets the listener (closing.h), all captures, the parent's pages and the pass counters of all other
// threads, and installs an open page. Call this in the child of a fork, in which only the calling thread
// exists.
void after_fork();

// RAII: the thread is inside the gate from construction to destruction. The constructor blocks while the gate
// is closed. Passes nest, since a driver entry point may call another one through our wrapper; only the
// outermost pass counts.
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
  // Call this inside the gate if the submitted work goes to the per-thread default stream.
  void to_own_stream() { detail::self.mark->own_stream.store(true, std::memory_order_relaxed); }
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;
};

}  // namespace sharedgpu::gate
